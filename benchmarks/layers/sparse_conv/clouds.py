"""The clouds of ``benchmarks.sparse_conv``: a scan of KITTI and generated ones, in voxels of several sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from models.point_clouds import kitti, scenes
from models.point_clouds.classes import NAMES
from models.point_clouds.data import FEATURES, Cloud
from models.point_clouds.layers import Layer, layers_of
from models.point_clouds.network import MinkUNet
from models.point_clouds.scan import Scan

VOXELS = (0.05, 0.1)


@dataclass(frozen=True)
class Recipe:
    """How a scan is had, None where it is not there; about how many points it has; and where it comes from."""

    load: Callable[[int], Scan | None]
    points: int
    origin: str


RECIPES = {
    "kitti": Recipe(lambda seed: kitti.sample(), 17_000, f"$GSB_DATA/{kitti.SAMPLE}, the field of a camera"),
    "street-1": Recipe(lambda seed: scenes.generate(1_000 * seed + 1), 109_000, "generated, 64 beams"),
    "street-2": Recipe(lambda seed: scenes.generate(1_000 * seed + 2), 109_000, "generated, 64 beams"),
    "small": Recipe(lambda seed: scenes.generate(1_000 * seed, 240, 32), 7_000, "generated, 32 beams, 240 azimuths"),
}
DEFAULT = ("kitti", "street-1", "street-2")
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


def network(depth: int = 18) -> MinkUNet:
    """MinkUNet of the features and classes of the clouds, from torch's present seed."""
    return MinkUNet(FEATURES, len(NAMES), depth)


def layers(cloud: Cloud, depth: int = 18) -> list[Layer]:
    """The distinct convolutions of the network."""
    return layers_of(network(depth), cloud.tensor())
