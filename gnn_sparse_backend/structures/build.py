"""COO to CSR and back, and CSR to CSC: stable counting orders on any device, and the index type rule.

On the CPU few edges are sorted by SciPy, on one thread; many by kernels, on all of them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..deferred import sparse_tools
from ..formats.counts import read
from ..formats.structure import row_of_position
from ..runtime import devices
from ..runtime.memory import check_memory
from .large.sorting import is_large, sort_list, sort_rows

INT32_LIMIT = 2**31 - 1
"""Largest number of rows, columns or edges for which indices are stored as int32."""


def index_dtype(shape: tuple[int, int], num_edges: int) -> torch.dtype:
    """int32 if every index and every offset of such a structure fits, else int64."""
    return torch.int32 if max(shape[0], shape[1], num_edges) <= INT32_LIMIT else torch.int64


def coo_to_csr(
    row: Tensor, col: Tensor, num_rows: int, in_order: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """CSR of the edges ``(row[e], col[e])``: ``(indptr, indices, edge_ids)`` in the type ``dtype``, in memory of its
    own.

    row, col: (edges,) integers of any type, in range. Edges of one row keep their order. ``edge_ids`` is None if the
    rows are ``in_order`` already, else ``edge_ids[p]`` is the edge at CSR position ``p``.
    """
    if in_order:
        return compress(row, num_rows).to(dtype), col.to(dtype, copy=True).contiguous(), None
    check_memory("an array of offsets", (num_rows + 1,), dtype.itemsize)
    if is_large(row):
        return sort_list(row, col, num_rows, dtype)
    row, col = row.to(dtype), col.to(dtype)
    if devices.on_cpu(row.device):
        # the matrix of edges by rows: its row e has the entry col[e] in column row[e]
        edges = np.arange(row.numel() + 1, dtype=row.numpy().dtype)
        indptr, edge_ids, indices = _csr_to_csc(edges, row.numpy(), col.numpy(), num_rows)
        return indptr, indices, edge_ids
    indptr, order = _stable_order(row, num_rows)
    return indptr, col.index_select(0, order), order.to(row.dtype)


def csr_to_coo(indptr: Tensor, indices: Tensor, edge_ids: Tensor | None) -> tuple[Tensor, Tensor]:
    """``(row, col)`` of the edges in the order of their ids, the inverse of ``coo_to_csr``."""
    row = row_of_position(indptr, indices.numel())
    if edge_ids is None:
        return row, indices
    at = edge_ids.long()
    return torch.empty_like(row).index_copy_(0, at, row), torch.empty_like(indices).index_copy_(0, at, indices)


def transpose_csr(
    indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, num_cols: int
) -> tuple[Tensor, Tensor, Tensor]:
    """CSR of the transpose, its edges known by the same user's ids as before."""
    check_memory("an array of offsets", (num_cols + 1,), indices.dtype.itemsize)
    if is_large(indices):
        return sort_rows(indptr, indices, edge_ids, num_cols)
    if devices.on_cpu(indices.device):
        columns = indices.numpy()
        ids = np.arange(columns.size, dtype=columns.dtype) if edge_ids is None else edge_ids.numpy()
        return _csr_to_csc(indptr.numpy(), columns, ids, num_cols)
    begin, order = _stable_order(indices, num_cols)
    rows = row_of_position(indptr, indices.numel()).index_select(0, order)
    return begin, rows, order.to(indices.dtype) if edge_ids is None else edge_ids.index_select(0, order)


def _csr_to_csc(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, num_cols: int) -> tuple[Tensor, ...]:
    """A CSR matrix by columns, as ``(indptr, indices, data)``: entries of a column keep their order, duplicates stay.

    SciPy counts the columns, in time linear in the entries: up to 40 times as fast as a sort of PyTorch.
    """
    begin = np.empty(num_cols + 1, indices.dtype)
    rows, moved = np.empty_like(indices), np.empty_like(data)
    sparse_tools().csr_tocsc(indptr.size - 1, num_cols, indptr, indices, data, begin, rows, moved)
    return torch.from_numpy(begin), torch.from_numpy(rows), torch.from_numpy(moved)


def _stable_order(keys: Tensor, bound: int) -> tuple[Tensor, Tensor]:
    """Where each of the keys in [0, bound) begins in their stable order, and this order."""
    sorted_keys, order = torch.sort(keys, stable=True)
    return compress(sorted_keys, bound), order


def compress(sorted_row: Tensor, num_rows: int) -> Tensor:
    """``indptr`` of sorted row numbers. On the CPU by NumPy: a mini-batch's few thousand rows are not worth waking
    PyTorch's threads.
    """
    check_memory("an array of offsets", (num_rows + 1,), sorted_row.itemsize)
    if devices.on_cpu(sorted_row.device):
        keys = sorted_row.numpy()
        return torch.from_numpy(keys.searchsorted(np.arange(num_rows + 1, dtype=keys.dtype)).astype(keys.dtype))
    bounds = torch.arange(num_rows + 1, dtype=sorted_row.dtype, device=sorted_row.device)
    return torch.searchsorted(sorted_row, bounds, out_int32=sorted_row.dtype == torch.int32)


def counts_up(edge_ids: Tensor) -> bool:
    """Whether ``edge_ids`` is 0, 1, 2, ..., which needs no storing."""
    count = edge_ids.numel()
    if count == 0:
        return True
    if read(edge_ids[0], edge_ids[-1]) != [0, count - 1]:
        return False
    return torch.equal(edge_ids, torch.arange(count, dtype=edge_ids.dtype, device=edge_ids.device))
