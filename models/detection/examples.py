"""Scans as voxels of a bounded grid, and what a detector has to say of the cells of its map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import spconv.pytorch as spconv
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from models.dataset import DataError
from models.detection.network import STRIDE
from models.point_clouds.classes import CLASS
from models.point_clouds.scan import Scan

THINGS = {"vehicle": ("car", "truck", "other vehicle"), "person": ("person",), "rider": ("bicyclist", "motorcyclist")}
"""The classes that KITTI's detectors are trained on, by ours of points."""


@dataclass(frozen=True)
class Grid:
    """The part of space that is seen, in metres from the scanner, and the voxels that it has: those of VoxelNeXt's
    configuration for KITTI unless given. x, y, z in this order.
    """

    low: tuple[float, float, float] = (0.0, -40.0, -3.0)
    high: tuple[float, float, float] = (70.4, 40.0, 1.0)
    voxel: tuple[float, float, float] = (0.05, 0.05, 0.1)

    @property
    def shape(self) -> list[int]:
        """Voxels along z, y and x. There is one more along z, so that four strides of 2 keep the whole column."""
        x, y, z = (round((high - low) / size) for low, high, size in zip(self.low, self.high, self.voxel))
        return [z + 1, y, x]

    @property
    def map_shape(self) -> tuple[int, int]:
        """Cells of the map along y and x: a convolution of stride 2 with padding rounds up."""
        _, y, x = self.shape
        return -(-y // STRIDE), -(-x // STRIDE)


@dataclass(frozen=True)
class Example:
    """Scans of one batch.

    voxels: (V, 4) int32, batch, z, y and x. features: (V, 4) float32, means of a voxel's points: x, y, z and
    remission. cells: (C,) int64, sorted numbers of the map's cells that hold a point. things: (C, classes) float32, 1
    where a point is of a thing of the class; None where the points have no labels. heights: (C,) float32, of the
    highest point.
    """

    grid: Grid
    voxels: Tensor
    features: Tensor
    cells: Tensor
    things: Tensor | None
    heights: Tensor
    scans: int

    @classmethod
    def of(cls, scans: Sequence[Scan], grid: Grid) -> Example:
        """The part of the scans that lies in the grid; raises DataError where there is none."""
        points, labels, batch = [], [], []
        for number, scan in enumerate(scans):
            inside = ((scan.points >= np.float32(grid.low)) & (scan.points < np.float32(grid.high))).all(1)
            points.append(np.column_stack([scan.points, scan.remission])[inside])
            labels.append(scan.labels[inside])
            batch.append(np.full(inside.sum(), number))
        points, labels, batch = (torch.from_numpy(np.concatenate(each)) for each in (points, labels, batch))
        if not len(points):
            raise DataError(f"no point of {', '.join(scan.name for scan in scans)} is in {grid}")
        low = torch.tensor([*grid.low, 0.0], dtype=torch.float64)
        coordinates, means, voxel_of = gsb.voxelize(points - low, grid.voxel, batch)
        voxels, features = coordinates[:, [0, 3, 2, 1]].int(), (means + low).float()
        at = voxels[:, [0, 2, 3]]
        at[:, 1:] //= STRIDE
        cells, cell_of = torch.unique(_number(at, grid.map_shape)[voxel_of], return_inverse=True)
        heights = torch.full((len(cells),), -torch.inf).scatter_reduce(0, cell_of, points[:, 2], "amax")
        things = None
        if bool(labels.any()):
            things = torch.zeros(len(cells), len(THINGS))
            for column, names in enumerate(THINGS.values()):
                of_class = torch.isin(labels, torch.tensor([CLASS[name] for name in names]))
                things[cell_of[of_class], column] = 1
        return cls(grid, voxels, features, cells, things, heights, len(scans))

    def tensor(self) -> spconv.SparseConvTensor:
        """The voxels with their features, and no map yet."""
        return spconv.SparseConvTensor(self.features, self.voxels, self.grid.shape, self.scans)

    def found_at(self, cells: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) rows of ``self.cells``, and whether they are there, of cells (N, 3): batch, y and x."""
        numbers = _number(cells, self.grid.map_shape)
        rows = torch.searchsorted(self.cells, numbers).clamp(max=len(self.cells) - 1)
        return rows, self.cells[rows] == numbers


def _number(cells: Tensor, shape: tuple[int, int]) -> Tensor:
    batch, y, x = cells.long().unbind(1)
    return (batch * shape[0] + y) * shape[1] + x
