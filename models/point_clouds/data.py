"""Scans to train on, generated or read, and clouds of voxels made of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.nn import SparseTensor
from models.dataset import DataError
from models.point_clouds import kitti, scenes
from models.point_clouds.classes import NAMES
from models.point_clouds.scan import Scan
from models.point_clouds.scanner import BEAMS

MIDDLE, SPREAD = (0.0, 0.0, -1.0, 0.3), (20.0, 20.0, 1.5, 0.2)
"""By which features are centred and scaled: x, y, z and remission."""
FEATURES = len(MIDDLE)


@dataclass(frozen=True)
class Scans:
    """Scans for training and validation, made or read when they are called for. origin: where from, in one line."""

    name: str
    origin: str
    train: Sequence[Callable[[], Scan]]
    val: Sequence[Callable[[], Scan]]

    def __str__(self) -> str:
        return f"{self.name}: {len(self.train)} scans, {len(self.val)} for validation ({self.origin})"


def load(name: str, train: int, val: int, seed: int, azimuths: int = scenes.AZIMUTHS, beams: int = BEAMS) -> Scans:
    """``generated``, or a folder of SemanticKITTI.

    train, val: how many scans; of a folder that has more, so many at equal distances. azimuths, beams: of generated
    ones.

    Raises DataError that says what is wrong with the name or the files.
    """
    for what, count, least in (("scans", train, 1), ("validation scans", val, 1), ("azimuths", azimuths, 8)):
        if count < least:
            raise DataError(f"{what} must be at least {least}, got {count}")
    if not 1 <= beams <= BEAMS:
        raise DataError(f"beams must be from 1 to {BEAMS}, got {beams}")
    if name == "generated":
        made = [
            functools.lru_cache(functools.partial(scenes.generate, 1_000 * seed + number, azimuths, beams))
            for number in range(train + val)
        ]
        origin = f"generated streets, seed {seed}, {beams} beams, {azimuths} azimuths"
        return Scans("generated", origin, made[:train], made[train:])
    parts = [
        [functools.partial(kitti.read, *pairs[number]) for number in _spread(len(pairs), count)]
        for pairs, count in zip(kitti.files(Path(name)), (train, val))
    ]
    return Scans("SemanticKITTI", name, *parts)


def _spread(there: int, wanted: int) -> np.ndarray:
    """So many numbers at equal distances."""
    return np.arange(min(there, wanted)) * there // min(there, wanted)


@dataclass(frozen=True)
class Cloud:
    """Scans as voxels.

    coordinates: (V, 4) int32 voxels, the scan's number first. features: (V, 4) float32, means of the voxel's points: x,
    y, z and remission, scaled. labels: (V,) int64, the most frequent. voxel_of: (N,) int64, the voxel of each point.
    point_labels: (N,) int64. scans: how many.
    """

    coordinates: Tensor
    features: Tensor
    labels: Tensor
    voxel_of: Tensor
    point_labels: Tensor
    scans: int

    @classmethod
    def of(cls, scans: Sequence[Scan], voxel: float, rng: np.random.Generator | None = None) -> Cloud:
        """Voxels of ``voxel`` metres. With ``rng`` each scan is turned about the vertical, mirrored and scaled."""
        places = np.concatenate([scan.points if rng is None else _moved(scan.points, rng) for scan in scans])
        remission, labels = (
            np.concatenate([getattr(scan, name) for scan in scans]) for name in ("remission", "labels")
        )
        batch = torch.from_numpy(np.repeat(np.arange(len(scans)), [len(scan) for scan in scans]))
        points = torch.from_numpy(np.column_stack([places, remission]))
        coordinates, means, voxel_of = gsb.voxelize(points, voxel, batch)
        features, count = (means - torch.tensor(MIDDLE)) / torch.tensor(SPREAD), len(coordinates)
        given = torch.from_numpy(labels)
        votes = torch.bincount(voxel_of * len(NAMES) + given, minlength=count * len(NAMES)).view(count, len(NAMES))
        return cls(coordinates, features, votes.argmax(1), voxel_of, given, len(scans))

    def to(self, device: torch.device | str) -> Cloud:
        """The same on a device."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: x.to(device) for name, x in given.items() if isinstance(x, Tensor)})

    def tensor(self) -> SparseTensor:
        """The voxels with their features, and no kernel map yet."""
        return SparseTensor(self.features, self.coordinates, batch_size=self.scans)

    def __len__(self) -> int:
        return len(self.coordinates)


def _moved(points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    angle, scale = rng.uniform(-np.pi, np.pi), rng.uniform(0.95, 1.05)
    cos, sin, mirror = np.cos(angle), np.sin(angle), rng.choice([-1, 1])
    turn = scale * np.array([[cos, -sin, 0], [mirror * sin, mirror * cos, 0], [0, 0, 1]])
    return points @ turn.T.astype(np.float32)
