"""Checks of the rows of integers that a user gives as sites."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..checks import as_index_vector
from .errors import NoSuchBatch, OutsideGrid
from .packing import Bounds

MOST_AXES = 5


def checked_rows(rows: object) -> Tensor:
    """(N, 1 + D) integers of a type that does not wrap."""
    if isinstance(rows, Tensor) and rows.dtype.is_floating_point:
        raise TypeError(
            f"coordinates must hold integers, got {rows.dtype}; gsb.voxelize(points, voxel_size) makes them of points"
        )
    if not isinstance(rows, Tensor) or rows.dim() != 2 or not 2 <= rows.shape[1] <= MOST_AXES + 1:
        found = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise TypeError(
            f"coordinates must be a tensor of shape (N, 1 + D), the batch first, D from 1 to {MOST_AXES}, got {found}"
        )
    as_index_vector("coordinates", rows.reshape(-1))
    with torch.inference_mode(False):  # made now, kept for a backward pass later
        return rows.detach().to(rows.dtype if rows.dtype == torch.int32 else torch.int64, copy=True).contiguous()


def check_inside(rows: Tensor, bounds: Bounds, batch_size: int | None, sizes: Sequence[int] | None) -> None:
    limits = [batch_size, *(sizes or (None,) * (len(bounds) - 1))]
    for column, ((low, high), limit) in enumerate(zip(bounds, limits)):
        if low > high or ((low >= 0 or (column and limit is None)) and (limit is None or high < limit)):
            continue
        bad = (rows[:, column] < 0) | (rows[:, column] >= (2**62 if limit is None else limit))
        at = int(bad.nonzero()[0])
        what = "batch" if column == 0 else f"coordinate along axis {column - 1}"
        allowed = "not negative" if limit is None else f"in [0, {limit})"
        raise (OutsideGrid if column else NoSuchBatch)(
            f"coordinates[{at}] = {rows[at].tolist()}: the {what} must be {allowed}"
        )
