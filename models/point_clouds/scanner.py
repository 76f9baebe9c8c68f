"""A rotating scanner: rays of 64 beams, and the first thing that each of them hits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

BEAMS = 64
# of a Velodyne HDL-64E: an upper block of 32 lasers a third of a degree apart, a lower one half a degree apart
ELEVATIONS = np.deg2rad(
    np.concatenate([2 - np.arange(32) / 3, -8.83 - 0.5 * np.arange(32)]),
).astype(np.float32)
HEIGHT = 1.73
"""Metres of the scanner above the road."""
NEAR, FAR = 1.5, 90.0
"""Metres between which it sees."""


@dataclass(frozen=True)
class Solid:
    """A box, ellipsoid or upright cylinder: the unit one, scaled by ``half``, turned by ``yaw``, moved to ``centre``.

    shape: "box", "ellipsoid" or "cylinder". centre, half: (x, y, z) in metres from the scanner, z upwards. label: its
    class. brightness: what share of the light comes back. path: metres that a ray goes through it on average before it
    is reflected: 0 for what is opaque; rays may pass the others.
    """

    shape: str
    centre: tuple[float, float, float]
    half: tuple[float, float, float]
    label: int
    yaw: float = 0.0
    brightness: float = 0.3
    path: float = 0.0


@dataclass
class Rays:
    """The rays of one turn, beams by azimuths, and what they have hit so far.

    direction: (3, beams, azimuths) unit vectors. distance: metres to the nearest hit, infinite without. label,
    brightness: of what was hit.
    """

    azimuths: int
    direction: np.ndarray
    distance: np.ndarray = field(init=False)
    label: np.ndarray = field(init=False)
    brightness: np.ndarray = field(init=False)

    def __post_init__(self):
        shape = self.direction.shape[1:]
        self.distance = np.full(shape, np.inf, np.float32)
        self.label = np.zeros(shape, np.int64)
        self.brightness = np.zeros(shape, np.float32)

    @classmethod
    def of_turn(cls, azimuths: int, beams: int = BEAMS) -> Rays:
        """One turn in so many steps; fewer beams are spread evenly over the 64."""
        elevation = ELEVATIONS[np.linspace(0, BEAMS - 1, beams).astype(int)][:, None]
        azimuth = (2 * np.pi / azimuths * np.arange(azimuths, dtype=np.float32) - np.pi)[None]
        flat = np.cos(elevation)
        direction = np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation) + 0 * azimuth])
        return cls(azimuths, direction.astype(np.float32))

    def columns(self, solid: Solid) -> np.ndarray | slice:
        """The azimuths at which a solid can be hit."""
        away, radius = np.hypot(*solid.centre[:2]), np.hypot(*solid.half[:2])
        if radius >= away:
            return slice(None)
        step = 2 * np.pi / self.azimuths
        middle, reach = np.arctan2(solid.centre[1], solid.centre[0]) + np.pi, np.arcsin(radius / away)
        first, last = int(np.floor((middle - reach) / step)), int(np.ceil((middle + reach) / step))
        return np.arange(first, last + 1) % self.azimuths

    def hit(self, where, distance: np.ndarray, label, brightness) -> None:
        """Keep those of ``distance`` (beams, azimuths ``where``) that are nearer than what was hit there before."""
        columns = slice(None), where
        nearer = distance < self.distance[columns]
        for name, new in (("distance", distance), ("label", label), ("brightness", brightness)):
            kept = getattr(self, name)
            kept[columns] = np.where(nearer, new, kept[columns])

    def cast(self, solid: Solid, rng: np.random.Generator) -> None:
        """Hit a solid where it is nearer than what was hit before."""
        where = self.columns(solid)
        enter, leave = _crossing(solid, self.direction[:, :, where])
        if solid.path:
            enter = enter + solid.path * rng.standard_exponential(enter.shape, dtype=np.float32)
        distance = np.where((enter > NEAR) & (enter < leave), enter, np.float32(np.inf))
        self.hit(where, distance, solid.label, solid.brightness)


def _crossing(solid: Solid, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where rays from the origin enter and leave a solid, in metres; those that miss it leave before they enter."""
    cos, sin = np.cos(solid.yaw), np.sin(solid.yaw)
    turn = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]]) / np.array(solid.half)[:, None]
    # in the solid's own coordinates, where it is the unit one
    origin = -(turn @ np.array(solid.centre)).astype(np.float32)
    ray = np.tensordot(turn.astype(np.float32), direction, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        if solid.shape == "box":
            return _slabs(origin, ray)
        if solid.shape == "cylinder":
            round_, caps = _round(origin[:2], ray[:2]), _slabs(origin[2:], ray[2:])
            return np.maximum(round_[0], caps[0]), np.minimum(round_[1], caps[1])
        return _round(origin, ray)


def _slabs(origin: np.ndarray, ray: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Crossing of |x| <= 1 in every coordinate."""
    at = origin[:, None, None]
    one, other = (-1 - at) / ray, (1 - at) / ray
    return np.minimum(one, other).max(0), np.maximum(one, other).min(0)


def _round(origin: np.ndarray, ray: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Crossing of the unit ball of the coordinates."""
    a, b = (ray * ray).sum(0), np.tensordot(origin, ray, 1)
    root = np.sqrt(b * b - a * (origin @ origin - 1))  # NaN, which is below nothing, where the ray misses
    return (-b - root) / a, (-b + root) / a
