"""``torch.ops.torch_sparse``: operators that programs and PyG's loaders call by their names in C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...deferred import later
from ...formats.counts import extent_of, prefix_sums
from ...formats.structure import positions_of_rows
from ..core.substitutes.namespaces import register
from . import products, sampling
from .storage import SparseStorage
from .tensor import SparseTensor
from .utils import ind2ptr, ptr2ind

if TYPE_CHECKING:
    from ...sampling import hgt, layers, numbers
    from . import relations
else:
    hgt, layers, numbers = (later(__name__, f"...sampling.{each}") for each in ("hgt", "layers", "numbers"))
    relations = later(__name__, ".relations")

_OPERATORS = {
    "ind2ptr(Tensor ind, int M) -> Tensor": ind2ptr,
    "ptr2ind(Tensor ptr, int E) -> Tensor": ptr2ind,
    "partition(Tensor rowptr, Tensor col, Tensor? value, int num_parts, bool recursive) -> Tensor": (
        lambda rowptr, col, value, parts, recursive: sampling.parts_of(rowptr, col, value, None, parts, recursive)
    ),
    "partition2(Tensor rowptr, Tensor col, Tensor? value, Tensor? node_weight, int num_parts, bool recursive) -> "
    "Tensor": sampling.parts_of,
    "mt_partition(Tensor rowptr, Tensor col, Tensor? value, Tensor? node_weight, int num_parts, bool recursive, "
    "int num_workers) -> Tensor": lambda *given: sampling.parts_of(*given[:6]),
    "non_diag_mask(Tensor row, Tensor col, int M, int N, int k) -> Tensor": lambda *given: beside_diagonal(*given),
    "relabel(Tensor col, Tensor idx) -> (Tensor, Tensor)": lambda *given: relabelled(*given),
    "relabel_one_hop(Tensor rowptr, Tensor col, Tensor? optional_value, Tensor idx, bool bipartite) -> "
    "(Tensor, Tensor, Tensor?, Tensor)": lambda *given: relabelled_rows(*given),
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
    "hetero_temporal_neighbor_sample(str[] node_types, (str, str, str)[] edge_types, Dict(str, Tensor) colptr_dict, "
    "Dict(str, Tensor) row_dict, Dict(str, Tensor) input_node_dict, Dict(str, int[]) num_neighbors_dict, "
    "Dict(str, Tensor) node_time_dict, int num_hops, bool replace, bool directed) -> "
    "(Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor))": (
        lambda *given: hetero_samples(*given[:6], *given[7:], times=given[6])
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
    times: Mapping[str, Tensor] | None = None,
) -> Dicts:
    """(nodes, rows, columns, entries) of a sample of in-neighbours by types, layer by layer.

    times: of nodes by type. Each seed has a tree of its own then, of nodes that are not later than it, and the drawn
    edges are given, whatever ``directed``. Raises ValueError for seeds without times.
    """
    timed, orders = times is not None, {}
    if times is not None:
        orders = {
            name: _by_time(colptr[name], times[source][row[name]])
            for (source, _, _), name in zip(edge_types, map("__".join, edge_types))
            if source in times
        }
        row = {name: each[orders[name]] if name in orders else each for name, each in row.items()}
    graph = relations.of_types(node_types, edge_types, colptr, row, times or {}, {}, {}, seeds, True)
    names = ["__".join(each) for each in edge_types]
    found = layers.sample_layers(
        graph.relations,
        graph.sizes,
        seeds,
        [fanouts[name][:hops] for name in names],
        sampling.drawn_seed(),
        replace=replace,
        disjoint=timed,
        latest=graph.latest(seeds, None, True) if timed else None,
        induced=not (directed or timed),
    )
    *numbered, entries = _by_name(found, names)
    return *numbered, {name: orders[name][each] if name in orders else each for name, each in entries.items()}


def _by_time(colptr: Tensor, times: Tensor) -> Tensor:
    """(nnz,) the entries of each column in the order of their times (nnz,), as samples take them."""
    order = times.argsort(stable=True)
    return order[ptr2ind(colptr, times.numel())[order].argsort(stable=True)]


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


def relabelled(col: Tensor, idx: Tensor) -> tuple[Tensor, Tensor]:
    """(nnz,) columns by new numbers, and the column of each number: those of ``idx`` (n,), which differ, first, then
    others as they are met.
    """
    begins = torch.tensor([0, col.numel()])
    known = numbers.Numbers(max(extent_of(col), extent_of(idx), 1), False, idx)
    found = known.number(begins[:1], known.span, begins, col.contiguous())
    return found, known.keys.clone()


def relabelled_rows(
    rowptr: Tensor, col: Tensor, value: Tensor | None, idx: Tensor, bipartite: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """(pointers, columns by new numbers, values, the column of each number) of the rows ``idx`` (n,), which differ; a
    row without entries for every other number that there is, unless ``bipartite``.
    """
    pointers, entries = positions_of_rows(rowptr, idx)
    found, keys = relabelled(col[entries], idx)
    if not bipartite:
        pointers = torch.cat([pointers, pointers[-1:].expand(keys.numel() - idx.numel())])
    return pointers, found, None if value is None else value[entries], keys


def beside_diagonal(row: Tensor, col: Tensor, rows: int, columns: int, k: int) -> Tensor:
    """(nnz + places,) bool: which entries, in order, are not of the diagonal ``k`` once it has one at each of its
    places. The matrix has none there, or all of its entries there are left out.
    """
    places = min(rows + k, columns) if k < 0 else min(rows, columns - k)
    mask = torch.zeros(row.numel() + places, dtype=torch.bool, device=row.device)
    before = (row + k + (row + k < col)).clamp(0, columns) - max(k, 0)
    kept = row + k != col
    mask[(torch.arange(row.numel(), device=row.device) + before.clamp(0, places))[kept]] = True
    return mask


register("torch_sparse", _OPERATORS)
