"""Parts of a sparse matrix: rows, columns, entries, diagonals, and its transpose."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...formats.structure import positions_of_rows
from ..core.substitutes.scripted import counted
from .storage import SparseStorage, get_layout

_counted = counted("torch_sparse")


@_counted
def t(src: Any) -> Any:
    """The transpose, which takes over what is derived."""
    held = src.storage
    order, (row, col, value) = held.csr2csc(), src.coo()
    made = SparseStorage(
        row=col[order],
        rowptr=held._colptr,
        col=row[order],
        value=None if value is None else value[order],
        sparse_sizes=held.sparse_sizes()[::-1],
        rowcount=held._colcount,
        colptr=held._rowptr,
        colcount=held._rowcount,
        csr2csc=held._csc2csr,
        csc2csr=order,
        is_sorted=True,
        trust_data=True,
    )
    return src.from_storage(made)


@_counted
def narrow(src: Any, dim: int, start: int, length: int) -> Any:
    """``length`` rows, columns, or features of entries from ``start`` on. Raises ValueError where entries have none."""
    dim = dim + src.dim() if dim < 0 else dim
    start = start + src.size(dim) if start < 0 else start
    held = src.storage
    if dim == 0:
        rowptr = held.rowptr()[start : start + length + 1]
        first, last = int(rowptr[0]), int(rowptr[-1])
        made = _of_rows(held, slice(first, last), start, rowptr - first, (length, src.sparse_size(1)))
        if held._rowcount is not None:
            made._rowcount = held._rowcount[start : start + length]
        return src.from_storage(made)
    if dim == 1:
        row, col, value = src.coo()
        mask = (col >= start) & (col < start + length)
        colptr, colcount = held._colptr, held._colcount
        if colptr is not None:
            colptr = colptr[start : start + length + 1]
            colptr = colptr - colptr[0]
        made = SparseStorage(
            row[mask],
            None,
            col[mask] - start,
            None if value is None else value[mask],
            (src.sparse_size(0), length),
            colptr=colptr,
            colcount=None if colcount is None else colcount[start : start + length],
            is_sorted=True,
            trust_data=True,
        )
        return src.from_storage(made)
    return src.set_value(_values(src).narrow(dim - 1, start, length), layout="coo")


@_counted
def __narrow_diag__(src: Any, start: tuple[int, int], length: tuple[int, int]) -> Any:
    """A block of a matrix of blocks along the diagonal, with what is derived: the way back from ``cat`` along both."""
    held = src.storage
    rowptr = held.rowptr()[start[0] : start[0] + length[0] + 1]
    first, last = int(rowptr[0]), int(rowptr[-1])
    made = _of_rows(held, slice(first, last), start[0], rowptr - first, length)
    made._col = made._col - start[1]
    for name, begin, size in (("rowcount", start[0], length[0]), ("colcount", start[1], length[1])):
        if (count := getattr(held, f"_{name}")) is not None:
            setattr(made, f"_{name}", count[begin : begin + size])
    if held._colptr is not None:
        colptr = held._colptr[start[1] : start[1] + length[1] + 1]
        made._colptr = colptr - colptr[0]
    for name in ("_csr2csc", "_csc2csr"):
        if (order := getattr(held, name)) is not None:
            setattr(made, name, order[first:last] - first)
    return src.from_storage(made)


def _of_rows(held: SparseStorage, part: slice, row: int, rowptr: Tensor, sizes: tuple[int, int]) -> SparseStorage:
    return SparseStorage(
        None if held._row is None else held._row[part] - row,
        rowptr,
        held._col[part],
        None if held._value is None else held._value[part],
        sizes,
        is_sorted=True,
        trust_data=True,
    )


@_counted
def select(src: Any, dim: int, idx: int) -> Any:
    """One row or column, as a matrix."""
    return narrow.__wrapped__(src, dim, idx, 1)


@_counted
def index_select(src: Any, dim: int, idx: Tensor) -> Any:
    """The rows, columns, or features of entries that an index (n,) says, in its order."""
    dim = dim + src.dim() if dim < 0 else dim
    held = src.storage
    if dim > 1:
        return src.set_value(_values(src).index_select(dim - 1, idx), layout="coo")
    count = (held.rowcount() if dim == 0 else held.colcount())[idx]
    pointers, others, value = src.csr() if dim == 0 else src.csc()
    own = torch.arange(idx.numel(), device=idx.device).repeat_interleave(count)
    begins, entries = positions_of_rows(pointers, idx)
    others = others[entries]
    value = None if value is None else value[entries]
    if dim == 0:
        made = SparseStorage(
            own, begins, others, value, (idx.numel(), src.sparse_size(1)), count, is_sorted=True, trust_data=True
        )
        return src.from_storage(made)
    sizes = src.sparse_size(0), idx.numel()
    return src.from_storage(
        SparseStorage(others, None, own, value, sizes, colptr=begins, colcount=count, trust_data=True)
    )


@_counted
def index_select_nnz(src: Any, idx: Tensor, layout: str | None = None) -> Any:
    """The entries that an index (n,) says, in the order of a layout. They must ascend."""
    return _of_entries(src, src.storage.csc2csr()[idx] if get_layout(layout) == "csc" else idx)


@_counted
def masked_select(src: Any, dim: int, mask: Tensor) -> Any:
    """The rows, columns, or features of entries where a mask is true."""
    return index_select.__wrapped__(src, dim, mask.nonzero().flatten())


@_counted
def masked_select_nnz(src: Any, mask: Tensor, layout: str | None = None) -> Any:
    """The entries where a mask (nnz,), in the order of a layout, is true."""
    return _of_entries(src, mask[src.storage.csc2csr()] if get_layout(layout) == "csc" else mask)


@_counted
def permute(src: Any, perm: Tensor) -> Any:
    """Rows and columns of a square matrix in the order ``perm`` (n,). Raises ValueError for another matrix."""
    if not src.is_quadratic():
        raise ValueError(f"permute wants a square matrix, got {src.sparse_sizes()}")
    return index_select.__wrapped__(index_select.__wrapped__(src, 0, perm), 1, perm)


@_counted
def remove_diag(src: Any, k: int = 0) -> Any:
    """Leave out the entries whose column is ``row + k``."""
    return _without_diag(src, k)


@_counted
def set_diag(src: Any, values: Tensor | None = None, k: int = 0) -> Any:
    """Put an entry at each place whose column is ``row + k``. values: of these, ones by default; not looked at where
    the matrix has none.
    """
    return _with_diag(src, values, k)


@_counted
def fill_diag(src: Any, fill_value: float, k: int = 0) -> Any:
    """``set_diag`` with one number."""
    value = src.storage.value()
    if value is not None:
        value = value.new_full((_extent_of_diag(src, k), *value.shape[1:]), fill_value)
    return _with_diag(src, value, k)


@_counted
def get_diag(src: Any) -> Tensor:
    """(min(rows, columns), ...) the values on the diagonal, 0 where there is no entry, 1 for each of a matrix without
    values.
    """
    row, col, value = src.coo()
    value = torch.ones(row.numel(), device=row.device) if value is None else value
    mask = row == col
    return value.new_zeros(min(src.sparse_sizes()), *value.shape[1:]).index_put((row[mask],), value[mask])


def _without_diag(src: Any, k: int) -> Any:
    held, (row, col, value) = src.storage, src.coo()
    kept = row != col - k
    counts = {}
    for name, index in (("rowcount", row), ("colcount", col)):
        if (count := getattr(held, f"_{name}")) is not None:
            counts[name] = count - torch.bincount(index[~kept], minlength=count.numel())
    made = SparseStorage(
        row[kept],
        None,
        col[kept],
        None if value is None else value[kept],
        src.sparse_sizes(),
        is_sorted=True,
        trust_data=True,
        **counts,
    )
    return src.from_storage(made)


def _with_diag(src: Any, values: Tensor | None, k: int) -> Any:
    src = _without_diag(src, k)
    held, (row, col, value) = src.storage, src.coo()
    first, many = max(-k, 0), max(_extent_of_diag(src, k), 0)
    own = torch.arange(first, first + many, device=row.device)
    if value is not None:
        values = value.new_ones(many, *value.shape[1:]) if values is None else values.to(value.dtype)
        value = torch.cat([value, values.expand(many, *value.shape[1:])])
    counts = {}
    for name, begin in (("rowcount", first), ("colcount", first + k)):
        if (count := getattr(held, f"_{name}")) is not None:
            counts[name] = count.clone()
            counts[name][begin : begin + many] += 1
    row, col = torch.cat([row, own]), torch.cat([col, own + k])
    return src.from_storage(SparseStorage(row, None, col, value, src.sparse_sizes(), **counts, trust_data=True))


def _extent_of_diag(src: Any, k: int) -> int:
    rows, columns = src.sparse_sizes()
    return min(rows + min(k, 0), columns - max(k, 0))


def _of_entries(src: Any, entries: Tensor) -> Any:
    row, col, value = src.coo()
    value = None if value is None else value[entries]
    made = SparseStorage(row[entries], None, col[entries], value, src.sparse_sizes(), is_sorted=True, trust_data=True)
    return src.from_storage(made)


def _values(src: Any) -> Tensor:
    value = src.storage.value()
    if value is None:
        raise ValueError(f"a matrix without values has two dimensions, sizes {src.sizes()}")
    return value
