"""Contiguous groups of rows of nearly equal cost, for a parallel loop over rows."""

from __future__ import annotations

import math

import numpy as np
import torch

from .structure import INDEX_TYPES, check_integer


def equal_row_groups(indptr, num_groups):
    """Cut the rows into ``num_groups`` contiguous groups of equally many rows, to within one.

    Args and returns: as for `balanced_row_groups`, whose groups hold equally much work instead.
    """
    num_groups = check_integer("num_groups", num_groups)
    cuts = torch.arange(num_groups + 1, dtype=torch.int64, device=indptr.device) * (indptr.numel() - 1)
    return torch.div(cuts, num_groups, rounding_mode="floor").to(indptr.dtype)


def balanced_row_groups(indptr, num_groups, cost_per_row=1.0, cost_per_nnz=1.0):
    """Cut the rows into ``num_groups`` contiguous groups of nearly equal cost.

    The first r rows cost ``cost_per_row * r + cost_per_nnz * indptr[r]``; group g starts at the row boundary
    whose cost is nearest to g / num_groups of the total. With both costs 1 this is the merge path of Merrill
    and Garland (Merge-based parallel sparse matrix-vector multiplication, SC 2016), its cuts moved to row boundaries.
    No group costs more than total / num_groups plus the cost of the most expensive row; a row is never
    split (`HybFormat` does that). Computed by NumPy, in some tens of microseconds for a mini-batch; a graph on a GPU is waited for.

    Args:
        indptr: (n_rows + 1,) int32 or int64, CSR offsets; the first need not be 0.
        num_groups: number of groups, at least 1; groups may be empty.
        cost_per_row, cost_per_nnz: finite, not negative, not both 0; only their ratio counts.

    Returns:
        (num_groups + 1,) tensor of the type and on the device of ``indptr``: non-decreasing, from 0 to n_rows.

    Raises:
        TypeError, ValueError: an argument is not as above.
    """
    if not isinstance(indptr, torch.Tensor) or indptr.dtype not in INDEX_TYPES:
        kind = indptr.dtype if isinstance(indptr, torch.Tensor) else type(indptr).__name__
        raise TypeError(f"indptr must be an int32 or int64 torch tensor, got {kind}")
    if indptr.dim() != 1 or not indptr.numel():
        raise ValueError(f"indptr must have shape (n_rows + 1,), got {tuple(indptr.shape)}")
    num_groups = check_integer("num_groups", num_groups)
    costs = {"cost_per_row": float(cost_per_row), "cost_per_nnz": float(cost_per_nnz)}
    for name, cost in costs.items():
        if not math.isfinite(cost) or cost < 0:
            raise ValueError(f"{name} must be finite and not negative, got {cost}")
    if not any(costs.values()):
        raise ValueError("cost_per_row and cost_per_nnz are both 0; give at least one a positive cost")

    n_rows, offsets = indptr.numel() - 1, indptr.numpy(force=True)
    prefix = np.arange(n_rows + 1) * costs["cost_per_row"] + (offsets - offsets[0]) * costs["cost_per_nnz"]
    target = np.arange(1, num_groups) / num_groups * prefix[-1]
    above = np.minimum(prefix.searchsorted(target), n_rows)
    below = np.maximum(above - 1, 0)
    group_ptr = np.zeros(num_groups + 1, offsets.dtype)
    group_ptr[1:-1] = np.where(target - prefix[below] < prefix[above] - target, below, above)
    group_ptr[-1] = n_rows
    return torch.from_numpy(group_ptr).to(indptr.device)
