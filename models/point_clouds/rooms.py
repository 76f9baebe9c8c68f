"""Furnished rooms as a hand-held camera maps them, made from a seed: points all over the surfaces that it saw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models.point_clouds.scan import Scan

DENSITY = 1500.0
"""Points of a square metre."""
NOISE = 0.004
"""Metres, standard deviation of a measured position."""
UNSEEN = 0.15
"""Part of the patches that the camera missed."""
PATCH = 0.4
"""Metres along the side of a patch."""


@dataclass(frozen=True)
class Panel:
    """A rectangle: a corner and two sides, (3,) each."""

    corner: np.ndarray
    along: np.ndarray
    up: np.ndarray

    def points(self, density: float, rng: np.random.Generator) -> np.ndarray:
        """(N, 3) points of a number of it, as many as its area has."""
        area = float(np.linalg.norm(np.cross(self.along, self.up)))
        u, v = rng.random((2, rng.poisson(area * density), 1))
        return self.corner + u * self.along + v * self.up


def generate(seed: int, density: float = DENSITY) -> Scan:
    """A room. Its size, its furniture and what the camera missed are drawn. Labels are 0: unknown."""
    rng = np.random.default_rng([seed, 3])
    size = np.array([rng.uniform(3, 8), rng.uniform(3, 6), rng.uniform(2.3, 3.0)])
    every = np.concatenate([panel.points(density, rng) for panel in _panels(size, rng)])
    # a patch is seen or not, whatever its surface
    cells = np.floor(every / PATCH).astype(np.int64)
    drawn = rng.random(tuple(cells.max(0) - cells.min(0) + 1))
    every = every[drawn[tuple((cells - cells.min(0)).T)] > UNSEEN]
    points = (every - size / 2 + NOISE * rng.standard_normal(every.shape)).astype(np.float32)
    turn = rng.uniform(-np.pi, np.pi)
    cos, sin = np.cos(turn), np.sin(turn)
    points = points @ np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]], np.float32).T
    remission = np.clip(0.5 + 0.2 * rng.standard_normal(len(points)), 0, 1).astype(np.float32)
    return Scan(f"room {seed}", np.ascontiguousarray(points), remission, np.zeros(len(points), np.int64))


def _panels(size: np.ndarray, rng: np.random.Generator) -> Iterator[Panel]:
    """Floor, ceiling, walls, and boxes that stand on the floor or hang on the walls."""
    yield from _box(np.zeros(3), size)
    for _ in range(rng.integers(4, 12)):
        half = rng.uniform((0.2, 0.2, 0.2), (1.0, 0.5, 1.0))
        yield from _box(*_placed(half, size, rng))
    for _ in range(rng.integers(1, 4)):  # tables: a top and four legs
        low, high = _placed(rng.uniform((0.3, 0.3, 0.35), (0.9, 0.5, 0.4)), size, rng)
        yield from _box(np.array([*low[:2], high[2] - 0.04]), high)
        for x in (low[0], high[0] - 0.05):
            for y in (low[1], high[1] - 0.05):
                yield from _box(np.array([x, y, 0.0]), np.array([x + 0.05, y + 0.05, high[2]]))


def _placed(half: np.ndarray, size: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a box of these halves that stands somewhere on the floor."""
    half = np.minimum(half, 0.45 * size)
    middle = np.array([*rng.uniform(half[:2], size[:2] - half[:2]), half[2]])
    return middle - half, middle + half


def _box(low: np.ndarray, high: np.ndarray) -> Iterator[Panel]:
    """The six sides of a box."""
    sides = np.diag(high - low)
    for axis in range(3):
        along, up = (sides[other] for other in range(3) if other != axis)
        yield Panel(low, along, up)
        yield Panel(low + sides[axis], along, up)
