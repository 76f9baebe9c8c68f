"""Contiguous groups of rows of nearly equal cost, for a parallel loop over rows."""

from __future__ import annotations

import math

import numpy as np
import torch

from ...compiler.cache.bounded import keeping, kept
from ..structure import INDEX_TYPES, check_integer


def equal_row_groups(indptr, num_groups):
    """Cut the rows into ``num_groups`` contiguous groups of equally many rows, to within one.

    Args and returns: as for `balanced_row_groups`, whose groups hold equally much work instead.
    """
    num_groups = check_integer("num_groups", num_groups)
    cuts = torch.arange(num_groups + 1, dtype=torch.int64, device=indptr.device) * (indptr.numel() - 1)
    return (cuts // num_groups).to(indptr.dtype)


def balanced_row_groups(indptr, num_groups, cost_per_row=1.0, cost_per_nnz=1.0):
    """Cut the rows into ``num_groups`` contiguous groups of nearly equal cost.

    The first r rows cost ``cost_per_row * r + cost_per_nnz * indptr[r]``; group g starts at the row boundary
    whose cost is nearest to g / num_groups of the total. With both costs 1 this is the merge path of Merrill
    and Garland (Merge-based parallel sparse matrix-vector multiplication, SC 2016), its cuts moved to row boundaries.
    No group costs more than total / num_groups plus the cost of the most expensive row; a row is never
    split (`HybFormat` does that). Computed by NumPy, in some ten microseconds for a mini-batch; a graph on a GPU is
    waited for.

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

    group_ptr = torch.from_numpy(_nearest_cuts(indptr.numpy(force=True), num_groups, **costs))
    return group_ptr if indptr.is_cpu else group_ptr.to(indptr.device)


LOOKS = 64
"""Stretches of equally many rows that `look_at_rows` tells the non-zeros of."""


def look_at_rows(offsets, count=LOOKS):
    """How the non-zeros of a structure are spread over its rows, in a few microseconds whatever its size.

    Args:
        offsets: (n_rows + 1,) NumPy array, CSR offsets.

    Returns:
        (count + 1,) the offsets at which ``count`` stretches of equally many rows, to within one, begin and end.
    """
    return offsets.take(_equal_cuts(len(offsets) - 1, count))


def cut_rows(offsets, num_groups, cost_per_row, cost_per_nnz, look=None):
    """`balanced_row_groups` for callers that count microseconds. Arguments are known to be right, and costs are floats.

    Up to ``EVEN_EDGES`` non-zeros groups of equal rows do as well, unless one costs ``EVEN`` times the mean: they are
    known beforehand.

    offsets: as NumPy's. look: ``look()`` is `look_at_rows(offsets)`, where a caller keeps that.
    """
    n_rows = len(offsets) - 1
    if num_groups == 1 or _nearly_even(offsets, num_groups, cost_per_row, cost_per_nnz, look):
        return _equal_rows(n_rows, num_groups, offsets.dtype)
    return torch.from_numpy(_nearest_cuts(offsets, num_groups, cost_per_row, cost_per_nnz))


def _nearly_even(offsets, num_groups, cost_per_row, cost_per_nnz, look):
    n_rows, nnz = len(offsets) - 1, int(offsets[-1]) - int(offsets[0])
    if nnz > EVEN_EDGES or n_rows < num_groups:
        return False
    stretches, rest = divmod(LOOKS, num_groups)
    at = look_at_rows(offsets, num_groups) if rest or look is None else look()[::stretches]
    cost = cost_per_row * -(-n_rows // num_groups) + cost_per_nnz * heaviest(at)
    return cost * num_groups <= EVEN * (cost_per_row * n_rows + cost_per_nnz * nnz)


def heaviest(at):
    """Non-zeros of the stretch of rows that has most, of those between consecutive offsets ``at``, NumPy's."""
    # faster than a reduction of so few
    return max((at[1:] - at[:-1]).tolist())


# What a graph has at most that goes in equal rows, as a mini-batch may, and how much of the mean a group of these costs
# at most: threads take many groups each, one after the other, so that this much evens out.
EVEN_EDGES, EVEN = 1 << 18, 1.5


def _nearest_cuts(offsets, num_groups, cost_per_row, cost_per_nnz):
    n_rows = len(offsets) - 1
    group_ptr = np.empty(num_groups + 1, offsets.dtype)
    group_ptr[0], group_ptr[-1] = 0, n_rows
    # A cut is nearest to boundary r if it lies beyond r of the midpoints between neighbouring boundaries. All costs are
    # doubled, and there are few operations: a fresh mini-batch waits for each of them.
    if cost_per_nnz != 1.0:
        offsets = offsets * cost_per_nnz
    first, last = float(offsets[0]), float(offsets[-1])
    middle = _row_middles(cost_per_row, n_rows) + offsets[1:]
    middle += offsets[:-1]
    cuts = _shares(num_groups) * (2.0 * (n_rows * cost_per_row + last - first))
    if first:
        cuts += 2.0 * first
    group_ptr[1:-1] = middle.searchsorted(cuts, side="right")
    return group_ptr


@kept
def _equal_rows(n_rows, num_groups, dtype):
    """The tensor of groups of equally many rows; nobody writes to it, so that graphs share it."""
    return torch.from_numpy(_equal_cuts(n_rows, num_groups).astype(dtype))


@kept
def _equal_cuts(n_rows, count):
    stretches, rest = divmod(LOOKS, count)
    if rest or stretches == 1:
        return _numbers(count) * n_rows // count
    return _equal_cuts(n_rows, LOOKS)[::stretches]  # the same, and mostly at hand


@keeping(64)
def _numbers(count):
    return np.arange(count + 1)


# Rows of a mini-batch, and more.
_KEPT_ROWS = 1 << 16


def _row_middles(cost, count):
    """Twice the costs up to the middle of each row, of rows that cost this much: 1, 3, 5, ... times it."""
    return _kept_row_middles(cost)[:count] if count <= _KEPT_ROWS else np.arange(1.0, 2 * count, 2) * cost


@keeping(4)
def _kept_row_middles(cost):
    return np.arange(1.0, 2 * _KEPT_ROWS, 2) * cost


@keeping(64)
def _shares(num_groups):
    """1 / num_groups, 2 / num_groups, ..., below 1."""
    return np.arange(1, num_groups) / num_groups
