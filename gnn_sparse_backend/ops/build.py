"""COO to CSR and CSR to CSC: stable counting orders on any device, and the index type rule."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import _sparsetools
from torch import Tensor

from ..formats.structure import row_of_position
from . import devices
from .checks import read
from .memory import check_memory

INT32_LIMIT = 2**31 - 1
"""Largest number of rows, columns or edges for which indices are stored as int32."""


def index_dtype(shape: tuple[int, int], num_edges: int) -> torch.dtype:
    """int32 if every index and every offset of such a structure fits, else int64."""
    return torch.int32 if max(shape[0], shape[1], num_edges) <= INT32_LIMIT else torch.int64


def coo_to_csr(row: Tensor, col: Tensor, num_rows: int, in_order: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """CSR of the edges ``(row[e], col[e])``: ``(indptr, indices, edge_ids)`` in the type of ``row``.

    Edges of one row keep their order. ``edge_ids`` is None if the rows are ``in_order`` already, else ``edge_ids[p]``
    is the edge at CSR position ``p``.
    """
    if in_order:
        return compress(row, num_rows), col.contiguous(), None
    return _ordered(row, col, None, num_rows)


def transpose_csr(
    indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, num_cols: int
) -> tuple[Tensor, Tensor, Tensor]:
    """CSR of the transpose, its edges known by the same user's ids as before."""
    return _ordered(indices, row_of_position(indptr, indices.numel()), edge_ids, num_cols)


def _ordered(keys: Tensor, values: Tensor, ids: Tensor | None, bound: int) -> tuple[Tensor, Tensor, Tensor]:
    """The stable order of keys in [0, bound): where each key begins, and ``values`` and ``ids`` (0, 1, ... if None) in
    it.

    On the CPU SciPy counts the keys, in time linear in them: up to 40 times as fast as a sort of PyTorch.
    """
    count, dtype = keys.numel(), keys.dtype
    check_memory("an array of offsets", (bound + 1,), dtype.itemsize)
    if devices.on_cpu(keys.device):
        if ids is None:
            ids = torch.arange(count, dtype=dtype, device=keys.device)
        begin, *out = (
            torch.empty(bound + 1, dtype=dtype, device=keys.device),
            torch.empty_like(ids),
            torch.empty_like(ids),
        )
        arrays = [np.ascontiguousarray(a.numpy()) for a in (keys, values, ids)]
        # duplicates stay; the number of columns is not looked at
        _sparsetools.coo_tocsr(bound, 1, count, *arrays, begin.numpy(), *(a.numpy() for a in out))
        return begin, *out
    sorted_keys, order = torch.sort(keys, stable=True)
    order = order.to(dtype)
    ids = order if ids is None else ids.index_select(0, order)
    return compress(sorted_keys, bound), values.index_select(0, order), ids


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
