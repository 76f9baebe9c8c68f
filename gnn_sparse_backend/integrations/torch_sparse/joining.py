"""``cat``: matrices one below or beside the other, along the diagonal, or by their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.substitutes.scripted import counted
from .storage import SparseStorage

_SHIFTED = {"row": 0, "col": 1, "rowptr": 2, "colptr": 2, "csr2csc": 2, "csc2csr": 2}
"""Indices, and by what those of a later matrix are larger: rows or columns before, or entries."""
_ALONG = {
    (0,): ("row", "rowptr", "col", "value", "rowcount"),
    (1,): ("row", "col", "value", "colptr", "colcount"),
    (0, 1): ("row", "rowptr", "col", "value", "rowcount", "colptr", "colcount", "csr2csc", "csc2csr"),
}
"""What is kept of all matrices, where all have it."""


@counted("torch_sparse")
def cat(tensors: Sequence[Any], dim: int | tuple[int, int]) -> Any:
    """Join matrices along rows (0), columns (1), both at once ((0, 1): blocks along the diagonal), or a dimension of
    their values. What is derived of all is joined, too.

    Raises ValueError without matrices, and IndexError for a dimension that there is not.
    """
    if not tensors:
        raise ValueError("cat wants one matrix or more")
    first = tensors[0]
    if isinstance(dim, int):
        dim = dim + first.dim() if dim < 0 else dim
        if 1 < dim < first.dim():
            return first.set_value(torch.cat([each.storage.value() for each in tensors], dim - 1), layout="coo")
        if dim not in (0, 1):
            raise IndexError(f"Dimension out of range (expected to be in range of [{-first.dim()}, {first.dim() - 1}])")
        return first.from_storage(_joined(tensors, (dim,)))
    if sorted(dim) != [0, 1]:
        raise IndexError(f"matrices are joined along (0, 1), got {dim}")
    return first.from_storage(_joined(tensors, (0, 1)))


def _joined(tensors: Sequence[Any], along: tuple[int, ...]) -> SparseStorage:
    if along == (1,):
        for each in tensors:
            each.storage.row()
    parts: dict[str, list[Tensor]] = {name: [] for name in _ALONG[along]}
    before = [0, 0, 0]
    sizes = [0, 0]
    for each in tensors:
        held = each.storage
        for name, found in parts.items():
            tensor = getattr(held, f"_{name}")
            if tensor is None:
                continue
            shift = before[_SHIFTED[name]] if name in _SHIFTED else 0
            if name in ("rowptr", "colptr") and found:
                tensor = tensor[1:]
            found.append(tensor + shift if shift else tensor)
        for axis in (0, 1):
            extent = each.sparse_size(axis)
            if axis in along:
                before[axis] += extent
                sizes[axis] += extent
            else:
                sizes[axis] = max(sizes[axis], extent)
        before[2] += each.nnz()
    kept = {name: torch.cat(found) for name, found in parts.items() if len(found) == len(tensors)}
    return SparseStorage(**kept, sparse_sizes=(sizes[0], sizes[1]), is_sorted=along != (1,), trust_data=True)
