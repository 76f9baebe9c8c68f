"""``torch.ops.torch_sparse``: operators that programs and PyG's loaders call by their names in C++."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.library import Library

from . import sampling
from .utils import ind2ptr, ptr2ind

_NAME = "torch_sparse"
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
_library: list[Library] = []


def register() -> None:
    """Have PyTorch know the operators, unless torch-sparse itself has registered some."""
    if _library or hasattr(getattr(torch.ops, _NAME), "ind2ptr"):
        return
    library = Library(_NAME, "FRAGMENT")
    for schema, function in _OPERATORS.items():
        name = library.define(schema)
        library.impl(name, function, "CompositeImplicitAutograd")
    _library.append(library)


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
    count = rowptr.diff()[reached]
    row = torch.arange(found.numel()).repeat_interleave(count)
    begins = torch.nn.functional.pad(count.cumsum(0), (1, 0))[:-1]
    entries = torch.arange(row.numel()) + (rowptr[reached] - begins)[row]
    wanted = of[row] * nodes + col[entries]
    place = torch.searchsorted(found, wanted).clamp(max=found.numel() - 1)
    kept = found[place] == wanted
    pointers = torch.nn.functional.pad(torch.bincount(row[kept], minlength=found.numel()).cumsum(0), (1, 0))
    ptr = torch.searchsorted(of, torch.arange(idx.numel() + 1))
    roots = torch.searchsorted(found, torch.arange(idx.numel()) * nodes + idx)
    return pointers, place[kept], reached, entries[kept], ptr, roots


register()
