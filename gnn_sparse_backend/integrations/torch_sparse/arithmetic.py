"""Sums and products entry by entry, and reductions over rows, columns or all."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.substitutes.scripted import counted
from ..torch_scatter import reductions
from ..torch_scatter.segment_csr import reduced_segments
from .storage import SparseStorage

_counted = counted("torch_sparse")
_REDUCES = {"sum": torch.sum, "add": torch.sum, "mean": torch.mean, "min": torch.amin, "max": torch.amax}


@_counted
def add(src: Any, other: Any) -> Any:
    """The sum with a matrix, whose entries are added or new, or with a row or column, (1, N, ...) or (M, 1, ...), that
    is added to all entries; entries without a value are ones. Raises ValueError for other shapes.
    """
    if not isinstance(other, Tensor):
        return _united(src, other)
    return src.set_value(_combined(src, other, torch.add, 1), layout="coo")


@_counted
def add_(src: Any, other: Tensor) -> Any:
    """Add to the values of a matrix."""
    return src.set_value_(_combined(src, other, torch.add, 1), layout="coo")


@_counted
def add_nnz(src: Any, other: Tensor, layout: str | None = None) -> Any:
    """Add a number to each entry, in the order of a layout."""
    value = src.storage.value()
    return src.set_value(other + 1 if value is None else value + other.to(value.dtype), layout=layout)


@_counted
def add_nnz_(src: Any, other: Tensor, layout: str | None = None) -> Any:
    value = src.storage.value()
    return src.set_value_(other + 1 if value is None else value.add_(other.to(value.dtype)), layout=layout)


@_counted
def mul(src: Any, other: Any) -> Any:
    """The product with a matrix, entries that both have, or with a row or column as of `add`. Raises ValueError where
    matrices are not coalesced or have no values.
    """
    if not isinstance(other, Tensor):
        return _met(src, other)
    return src.set_value(_combined(src, other, torch.mul, None), layout="coo")


@_counted
def mul_(src: Any, other: Tensor) -> Any:
    return src.set_value_(_combined(src, other, torch.mul, None), layout="coo")


@_counted
def mul_nnz(src: Any, other: Tensor, layout: str | None = None) -> Any:
    value = src.storage.value()
    return src.set_value(other if value is None else value * other.to(value.dtype), layout=layout)


@_counted
def mul_nnz_(src: Any, other: Tensor, layout: str | None = None) -> Any:
    value = src.storage.value()
    return src.set_value_(other if value is None else value.mul_(other.to(value.dtype)), layout=layout)


def _combined(src: Any, other: Tensor, how: Callable[..., Tensor], alone: int | None) -> Tensor:
    """Values with those of a row or column. alone: what entries without a value are combined as."""
    value = src.storage.value()
    rows, columns = src.sparse_sizes()
    if other.dim() > 1 and other.shape[:2] == (rows, 1):
        other = other.squeeze(1).index_select(0, src.storage.row())
    elif other.dim() > 1 and other.shape[:2] == (1, columns):
        other = other.squeeze(0).index_select(0, src.storage.col())
    else:
        raise ValueError(
            f"Size mismatch: Expected size ({rows}, 1, ...) or (1, {columns}, ...), but got size {tuple(other.shape)}."
        )
    if value is None:
        return other if alone is None else how(other, alone)
    return how(other.to(value.dtype), value)


def _larger_sizes(src: Any, other: Any) -> tuple[int, int]:
    rows, columns = (builtins.max(both) for both in zip(src.sparse_sizes(), other.sparse_sizes()))
    return rows, columns


def _united(src: Any, other: Any) -> Any:
    (row, col, value), (more_rows, more_cols, more) = src.coo(), other.coo()
    both = torch.cat([value, more]) if value is not None and more is not None else None
    sizes = _larger_sizes(src, other)
    made = SparseStorage(torch.cat([row, more_rows]), None, torch.cat([col, more_cols]), both, sizes)
    return src.from_storage(made.coalesce("sum"))


def _met(src: Any, other: Any) -> Any:
    for name, each in (("src", src), ("other", other)):
        if not each.is_coalesced():
            raise ValueError(f"The `{name}` tensor is not coalesced")
        if not each.has_value():
            raise ValueError("Both sparse tensors must contain values")
    (row, col, value), (more_rows, more_cols, more) = src.coo(), other.coo()
    sizes = _larger_sizes(src, other)
    keys, others = row * sizes[1] + col, more_rows * sizes[1] + more_cols
    place = torch.searchsorted(others, keys).clamp_(max=builtins.max(others.numel() - 1, 0))
    kept = others[place] == keys if others.numel() else torch.zeros_like(keys, dtype=torch.bool)
    value = value[kept] * more[place[kept]]
    return src.from_storage(SparseStorage(row[kept], None, col[kept], value, sizes, is_sorted=True, trust_data=True))


@_counted
def sum(src: Any, dim: int | None = None) -> Tensor:
    """The sum over ``dim``: 0 for each column, 1 for each row, a dimension of values, or all; entries without a value
    are ones.
    """
    return reduction(src, dim, "sum")


@_counted
def mean(src: Any, dim: int | None = None) -> Tensor:
    return reduction(src, dim, "mean")


@_counted
def min(src: Any, dim: int | None = None) -> Tensor:
    return reduction(src, dim, "min")


@_counted
def max(src: Any, dim: int | None = None) -> Tensor:
    return reduction(src, dim, "max")


def reduction(src: Any, dim: int | None = None, reduce: str = "sum") -> Tensor:
    """The reduction of entries over a dimension. Raises ValueError for another ``reduce``, or a dimension that there is
    not.
    """
    if reduce not in _REDUCES:
        raise ValueError(f"reduce must be one of {', '.join(map(repr, _REDUCES))}, got {reduce!r}")
    value = src.storage.value()
    sums = reduce in ("sum", "add")
    if dim is None:
        if value is None:
            return torch.tensor(src.nnz() if sums else 1, dtype=src.dtype(), device=src.device())
        return _REDUCES[reduce](value)
    dim = dim + src.dim() if dim < 0 else dim
    if not 0 <= dim < src.dim():
        raise ValueError(f"dim must be below {src.dim()}, got {dim}")
    if dim > 1:
        return _REDUCES[reduce](value, dim - 1)
    if value is None:
        count = src.storage.colcount() if dim == 0 else src.storage.rowcount()
        return (count if sums else torch.ones_like(count)).to(src.dtype())
    if dim == 1:
        return reduced_segments(value, src.storage.rowptr(), reduce)
    columns, col = src.sparse_size(1), src.storage.col()
    if sums:
        return reductions.summed(value, col, 0, None, columns)
    if reduce == "mean":
        return reductions.averaged(value, col, 0, None, columns)
    return reductions.extreme(reduce, value, col, 0, None, columns)[0]
