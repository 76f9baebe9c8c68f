"""The clouds of ``benchmarks.sparse_conv``: a scan of KITTI, generated streets and rooms, in voxels of some sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.point_clouds import kitti, rooms, scenes
from models.point_clouds.classes import NAMES
from models.point_clouds.data import FEATURES, Cloud
from models.point_clouds.layers import Layer, layers_of
from models.point_clouds.network import MinkUNet
from models.point_clouds.scan import Scan

STREETS = (1800, 64), (1800, 64), (1200, 64), (900, 64), (1800, 32), (900, 32), (600, 32), (300, 32)
"""Steps of a turn and beams of the generated streets."""
ROOMS = 1500, 1500, 1500, 1500, 800, 800, 400, 400
"""Points of a square metre of the generated rooms."""


@dataclass(frozen=True)
class Recipe:
    """How a scan is had, None where it is not there; about how many points it has; where it comes from; and metres of
    its voxels.
    """

    load: Callable[[int], Scan | None]
    points: int
    origin: str
    voxels: tuple[float, ...]


def _street(number: int, azimuths: int, beams: int) -> Recipe:
    return Recipe(
        lambda seed: scenes.generate(1_000 * seed + number, azimuths, beams),
        int(0.95 * azimuths * beams),
        f"generated, {beams} beams, {azimuths} azimuths",
        (0.05,) if number % 2 else (0.1,),
    )


def _room(number: int, density: int) -> Recipe:
    return Recipe(
        lambda seed: rooms.generate(1_000 * seed + number, density),
        120 * density,
        f"generated, {density} points of a square metre",
        (0.02,) if number % 2 else (0.04,),
    )


RECIPES = {
    "kitti": Recipe(
        lambda seed: kitti.sample(), 17_000, f"$GSB_DATA/{kitti.SAMPLE}, the field of a camera", (0.05, 0.1)
    ),
    **{f"street-{number}": _street(number, *each) for number, each in enumerate(STREETS, 1)},
    **{f"room-{number}": _room(number, density) for number, density in enumerate(ROOMS, 1)},
    "small": _street(0, 240, 32),
}
DEFAULT = tuple(name for name in RECIPES if name != "small")
MISSING = "GSB_DATA names no folder with this scan"


@dataclass(frozen=True)
class Place:
    """A scan in voxels of some metres."""

    scan: str
    voxel: float
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.scan}, {self.voxel:g} m"

    def cloud(self) -> Cloud | None:
        """None where there is no such scan."""
        scan = RECIPES[self.scan].load(self.seed)
        return None if scan is None else Cloud.of([scan], self.voxel)


def places(scans: Sequence[str], voxels: Sequence[float] | None, seed: int) -> list[Place]:
    """Each scan in voxels of each size; None for those of its own."""
    return [Place(scan, voxel, seed) for scan in scans for voxel in voxels or RECIPES[scan].voxels]


def network(depth: int = 18) -> MinkUNet:
    """MinkUNet of the features and classes of the clouds, from torch's present seed."""
    return MinkUNet(FEATURES, len(NAMES), depth)


def layers(cloud: Cloud, depth: int = 18) -> list[Layer]:
    """The distinct convolutions of the network."""
    return layers_of(network(depth), cloud.tensor())
