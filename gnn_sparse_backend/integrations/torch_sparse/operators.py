"""``torch.ops.torch_sparse``: operators that programs and PyG's loaders call by their names in C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...deferred import later
from ...formats.counts import prefix_sums
from ...formats.structure import positions_of_rows
from ..core.substitutes.namespaces import register
from . import products, sampling
from .storage import SparseStorage
from .tensor import SparseTensor
from .utils import ind2ptr, ptr2ind

if TYPE_CHECKING:
    from ...sampling import hgt, layers
    from . import relations
else:
    hgt, layers = later(__name__, "...sampling.hgt"), later(__name__, "...sampling.layers")
    relations = later(__name__, ".relations")

_OPERATORS = {
    "ind2ptr(Tensor ind, int M) -> Tensor": ind2ptr,
    "ptr2ind(Tensor ptr, int E) -> Tensor": ptr2ind,
    "partition(Tensor rowptr, Tensor col, Tensor? value, int num_parts, bool recursive) -> Tensor": (
        lambda rowptr, col, value, parts, recursive: sampling.parts_of(rowptr, col, value, None, parts, recursive)
    ),
    "partition2(Tensor rowptr, Tensor col, Tensor? value, Tensor? node_weight, int num_parts, bool recursive) -> "
    "Tensor": sampling.parts_of,
    "neighbor_sample(Tensor colptr, Tensor row, Tensor input_node, int[] num_neighbors, bool replace, bool directed) "
    "-> (Tensor, Tensor, Tensor, Tensor)": sampling.neighbours,
    "saint_subgraph(Tensor idx, Tensor rowptr, Tensor row, Tensor col) -> (Tensor, Tensor, Tensor)": (
        lambda idx, rowptr, row, col: sampling.induced(idx, rowptr, col)
    ),
    "sample_adj(Tensor rowptr, Tensor col, Tensor idx, int num_neighbors, bool replace) -> "
    "(Tensor, Tensor, Tensor, Tensor)": sampling.adjacent,
    "random_walk(Tensor rowptr, Tensor col, Tensor start, int walk_length) -> Tensor": (
        lambda rowptr, col, start, length: sampling.walks.walks(rowptr, col, start, length, sampling.drawn_seed())[0]
    ),
    "ego_k_hop_sample_adj(Tensor rowptr, Tensor col, Tensor idx, int depth, int num_neighbors, bool replace) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)": lambda *given: ego_samples(*given),
    "hetero_neighbor_sample(str[] node_types, (str, str, str)[] edge_types, Dict(str, Tensor) colptr_dict, "
    "Dict(str, Tensor) row_dict, Dict(str, Tensor) input_node_dict, Dict(str, int[]) num_neighbors_dict, int num_hops, "
    "bool replace, bool directed) -> (Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor))": (
        lambda *given: hetero_samples(*given)
    ),
    "hgt_sample(Dict(str, Tensor) colptr_dict, Dict(str, Tensor) row_dict, Dict(str, Tensor) input_node_dict, "
    "Dict(str, int[]) num_samples_dict, int num_hops) -> "
    "(Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor))": lambda *given: hgt_samples(*given),
    "spmm_sum(Tensor? row, Tensor rowptr, Tensor col, Tensor? value, Tensor? colptr, Tensor? csr2csc, Tensor mat) -> "
    "Tensor": lambda _, *given: _product("sum", *given),
    "spmm_mean(Tensor? row, Tensor rowptr, Tensor col, Tensor? value, Tensor? rowcount, Tensor? colptr, "
    "Tensor? csr2csc, Tensor mat) -> Tensor": lambda _, *given: _product("mean", *given),
    "spmm_min(Tensor rowptr, Tensor col, Tensor? value, Tensor mat) -> (Tensor, Tensor)": lambda *given: _product(
        "min", *given
    ),
    "spmm_max(Tensor rowptr, Tensor col, Tensor? value, Tensor mat) -> (Tensor, Tensor)": lambda *given: _product(
        "max", *given
    ),
    "cuda_version() -> int": lambda: -1,
}


def _product(reduce: str, rowptr: Tensor, col: Tensor, value: Tensor | None, *rest: Tensor | None) -> Any:
    """The product of a matrix by rows with the last argument; of an extreme with its places. What is derived of the
    matrix, and comes between, is not looked at.
    """
    mat = rest[-1]
    assert mat is not None
    sizes = rowptr.numel() - 1, mat.shape[-2]
    matrix = SparseTensor.from_storage(SparseStorage(None, rowptr, col, value, sizes, is_sorted=True, trust_data=True))
    how = products.dense_product if reduce in ("sum", "mean") else products.extreme_product
    return how(matrix, mat, reduce)


Dicts = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]


def hetero_samples(
    node_types: Sequence[str],
    edge_types: Sequence[tuple[str, str, str]],
    colptr: Mapping[str, Tensor],
    row: Mapping[str, Tensor],
    seeds: Mapping[str, Tensor],
    fanouts: Mapping[str, Sequence[int]],
    hops: int,
    replace: bool,
    directed: bool,
) -> Dicts:
    """(nodes, rows, columns, entries) of a sample of in-neighbours by types, layer by layer."""
    graph = relations.of_types(node_types, edge_types, colptr, row, {}, {}, {}, seeds, True)
    names = ["__".join(each) for each in edge_types]
    found = layers.sample_layers(
        graph.relations,
        graph.sizes,
        seeds,
        [fanouts[name][:hops] for name in names],
        sampling.drawn_seed(),
        replace=replace,
        induced=not directed,
    )
    return _by_name(found, names)


def hgt_samples(
    colptr: Mapping[str, Tensor],
    row: Mapping[str, Tensor],
    seeds: Mapping[str, Tensor],
    samples: Mapping[str, Sequence[int]],
    hops: int,
) -> Dicts:
    """(nodes, rows, columns, entries) of a sample of ``samples[type][layer]`` nodes, by budgets (`sampling.hgt`)."""
    source_relation_destination = [tuple(name.split("__")) for name in colptr]
    graph = relations.of_types(list(samples), source_relation_destination, colptr, row, {}, {}, {}, seeds, True)
    counts = {kind: each[:hops] for kind, each in samples.items()}
    return _by_name(
        hgt.sample_budgets(graph.relations, graph.sizes, seeds, counts, sampling.drawn_seed()), list(colptr)
    )


def _by_name(found: layers.Layers, names: list[str]) -> Dicts:
    edges = dict(zip(names, found.edges))
    return (
        found.nodes,
        {name: each.sources for name, each in edges.items()},
        {name: each.destinations for name, each in edges.items()},
        {name: each.positions for name, each in edges.items()},
    )


def ego_samples(
    rowptr: Tensor, col: Tensor, idx: Tensor, depth: int, num_neighbors: int, replace: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(pointers, columns, nodes, entries, where each subgraph begins, the number of each root): for each node the
    subgraph of those that ``depth`` samples of ``num_neighbors`` reach, its nodes in ascending order.
    """
    nodes = rowptr.numel() - 1
    reached = idx.long()
    of = torch.arange(idx.numel())
    keys = [of * nodes + reached]
    for _ in range(depth):
        pointers, columns, numbers, _ = sampling.adjacent(rowptr, col, reached, num_neighbors, replace)
        reached, of = numbers[columns], of.repeat_interleave(pointers.diff())
        keys.append(of * nodes + reached)
    found = torch.cat(keys).unique()
    of, reached = found // nodes, found % nodes
    begins, entries = positions_of_rows(rowptr, reached)
    row = ptr2ind(begins, entries.numel())
    wanted = of[row] * nodes + col[entries]
    place = torch.searchsorted(found, wanted).clamp(max=found.numel() - 1)
    kept = found[place] == wanted
    pointers = prefix_sums(torch.bincount(row[kept], minlength=found.numel()))
    ptr = torch.searchsorted(of, torch.arange(idx.numel() + 1))
    roots = torch.searchsorted(found, torch.arange(idx.numel()) * nodes + idx)
    return pointers, place[kept], reached, entries[kept], ptr, roots


register("torch_sparse", _OPERATORS)
