"""``torch.ops.torch_sparse``: operators that programs and PyG's loaders call by their names in C++."""

from __future__ import annotations

import torch
from torch import Tensor

from ...formats.counts import prefix_sums
from ...formats.structure import positions_of_rows
from ..core.substitutes.scripted import register
from . import sampling
from .utils import ind2ptr, ptr2ind

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
        lambda rowptr, col, start, length: sampling.walks(rowptr, col, start, length, sampling.drawn_seed())[0]
    ),
    "ego_k_hop_sample_adj(Tensor rowptr, Tensor col, Tensor idx, int depth, int num_neighbors, bool replace) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)": lambda *given: ego_samples(*given),
    "cuda_version() -> int": lambda: -1,
}


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
