"""``gsb.voxelize``: points as the voxels that hold them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...formats.counts import at_places, begins_of
from ...structures.checks import as_index_vector
from ...structures.coordinates.checked import MOST_AXES
from ...structures.coordinates.packing import bounds_of, in_order, packing_of
from ...structures.segments import Segments
from ..core.operands import check_dense
from ..grouped.segment_reduce import segment_reduce
from ..message.checks import check_choice

REDUCTIONS = ("mean", "sum", "max", "min")
AXES = 3
"""Axes of points, where one size is given for all."""


def voxelize(
    points: Tensor, voxel_size: float | Sequence[float], batch: Tensor | None = None, reduce: str = "mean"
) -> tuple[Tensor, Tensor, Tensor]:
    """Points of one voxel become one site: ``floor(position / voxel_size)`` of the first columns of ``points``.

        coordinates, features, inverse = gsb.voxelize(points, 0.05)
        x = nn.SparseTensor(features, coordinates)
        y = model(x).features[inverse]        # of each point

    Args:
        points: (N, D + E) positions along D axes, 1 to 5, and E more columns, in float32, float64, bfloat16 or float16.
        voxel_size: the length of a voxel along each axis, D numbers; or one number for all of them: the first three
            columns are then positions, or all where there are fewer.
        batch: None for one batch, or (N,) integers that are not negative: which one each point belongs to.
        reduce: ``"mean"``, ``"sum"``, ``"max"`` or ``"min"`` of the points of a voxel, column by column.

    Returns:
        coordinates: (M, 1 + D) int32 where they fit, else int64: the batch, then the voxel; in ascending order.
        features: (M, D + E) reductions of the columns of ``points``, positions among them, in their type. Gradients
            flow to ``points`` through these.
        inverse: (N,) int64, the row of the voxel of each point.

    Positions are divided in float64.

    Raises:
        TypeError, ValueError: an argument is not as above, a position is not finite, or voxels have too many values
            along their axes: 64-bit keys have to number the cells between them. The first bad point is quoted.
    """
    check_choice("voxelize", "reduce", reduce, REDUCTIONS)
    check_dense("voxelize", "points", points)
    if points.dim() != 2 or not points.shape[1]:
        raise ValueError(f"voxelize: points must have shape (N, D + E), got {tuple(points.shape)}")
    sizes = _sizes(voxel_size, points.shape[1])
    cells = (
        points.detach()[:, : len(sizes)].double() / torch.tensor(sizes, device=points.device, dtype=torch.float64)
    ).floor()
    _check_cells(points, cells)
    rows = torch.cat([_batches(batch, points)[:, None], cells.long()], 1)
    if not rows.shape[0]:
        return rows.int(), points, rows[:, 0]
    rows = rows.cpu()
    bounds = bounds_of(rows)
    packing = packing_of(bounds, lambda: rows.unbind(1))
    keys, order, _ = in_order(packing.pack(rows)[0][:-1], packing.bits)
    begins = begins_of(keys[:-1])
    coordinates = rows.index_select(0, order[begins])
    if all(-(2**31) <= low and high < 2**31 for low, high in bounds):
        coordinates = coordinates.int()
    inverse = at_places(order, begins.cumsum(0) - 1).to(points.device)
    segments = Segments.from_index(inverse, coordinates.shape[0])
    return coordinates.to(points.device), segment_reduce(points, segments, reduce), inverse


def _sizes(voxel_size: float | Sequence[float], columns: int) -> list[float]:
    """The length of a voxel along each axis."""
    single = isinstance(voxel_size, (int, float))
    given = [voxel_size] * min(AXES, columns) if single else voxel_size
    try:
        sizes = [float(x) for x in given]
    except (TypeError, ValueError):
        raise TypeError(f"voxelize: voxel_size must be a number, or one for each axis, got {voxel_size!r}") from None
    if not 1 <= len(sizes) <= min(MOST_AXES, columns):
        raise ValueError(
            f"voxelize: voxel_size must have a number for each of 1 to {MOST_AXES} axes, of which points have "
            f"{columns} columns, got {voxel_size!r}"
        )
    if not all(0 < x < float("inf") for x in sizes):
        raise ValueError(f"voxelize: voxel_size must be positive and finite, got {voxel_size!r}")
    return sizes


def _check_cells(points: Tensor, cells: Tensor) -> None:
    """Positions are finite, and voxels within 64 bits."""
    bad = ~(cells.abs() < 2**62).all(1)
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        raise ValueError(
            f"voxelize: points[{at}] = {points[at].tolist()} is in no voxel that 64 bits can number; leave it out"
        )


def _batches(batch: Tensor | None, points: Tensor) -> Tensor:
    if batch is None:
        return torch.zeros(points.shape[0], dtype=torch.int64, device=points.device)
    batch = as_index_vector("voxelize: batch", batch)
    if batch.shape != points.shape[:1] or batch.device != points.device:
        raise ValueError(
            f"voxelize: batch must have an entry for each of {points.shape[0]} points on {points.device}, got shape "
            f"{tuple(batch.shape)} on {batch.device}"
        )
    if batch.numel() and int(batch.min()) < 0:
        at = int((batch < 0).nonzero()[0])
        raise ValueError(f"voxelize: batch must not be negative, but batch[{at}] = {int(batch[at])}")
    return batch.long()
