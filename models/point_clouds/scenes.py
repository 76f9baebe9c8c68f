"""Labelled street scenes as a rotating scanner sees them, made from a seed: ground, houses, trees, vehicles, people."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from models.point_clouds.classes import CLASS
from models.point_clouds.scan import Scan
from models.point_clouds.scanner import BEAMS, FAR, HEIGHT, NEAR, Rays, Solid

AZIMUTHS = 1800
"""Steps of a turn: 64 beams give about 100,000 points."""
NOISE = 0.02
"""Metres, standard deviation of a measured distance."""
LENGTH = 80.0
"""Metres of street that are built before and behind the scanner."""


def generate(seed: int, azimuths: int = AZIMUTHS, beams: int = BEAMS) -> Scan:
    """A scene. The direction of the street, its slope, its kerbs, and what stands beside it are drawn."""
    rng = np.random.default_rng([seed, 64])
    street = Street(rng)
    rays = Rays.of_turn(azimuths, beams)
    street.cast_ground(rays)
    for solid in street.solids():
        rays.cast(street.placed(solid), rng)
    seen = np.isfinite(rays.distance) & (rays.distance < FAR) & (rays.distance > NEAR)
    # light gets lost on the way, most of it of dark and distant things
    lost = 0.03 + 0.5 * (rays.distance / FAR) ** 2 * (1 - rays.brightness)
    seen &= rng.random(seen.shape, dtype=np.float32) > np.where(seen, lost, 1)
    distance = rays.distance[seen] + NOISE * rng.standard_normal(seen.sum(), dtype=np.float32)
    points = (rays.direction[:, seen] * distance).T
    remission = rays.brightness[seen] + 0.12 * rng.standard_normal(len(points), dtype=np.float32)
    return Scan(
        f"scene {seed}", np.ascontiguousarray(points), np.clip(remission, 0, 1), rays.label[seen].astype(np.int64)
    )


class Street:
    """A street along the first axis of its own coordinates, and what stands on it; the scanner drives on its right."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.yaw = rng.uniform(-np.pi, np.pi)
        self.slope = rng.normal(0, 0.02, 2)
        self.half_width = rng.uniform(4.0, 6.5)  # of the road
        self.kerb = rng.uniform(0.08, 0.18)  # its height
        self.pavement = rng.uniform(2.0, 4.0)  # its width
        self.offset = rng.uniform(1.5, self.half_width - 1.5)  # of the scanner, to the right of the middle
        cos, sin = np.cos(self.yaw), np.sin(self.yaw)
        self.turn = np.array([[cos, -sin], [sin, cos]])

    def ground(self, x: float, y: float) -> float:
        """Height of the ground at a place, in the street's coordinates, the scanner's height being 0."""
        return -HEIGHT + self.slope @ (x, y + self.offset) + (self.kerb if abs(y) > self.half_width else 0.0)

    def placed(self, solid: Solid) -> Solid:
        """A solid of the street's coordinates, with z from the ground under its middle, in those of the scanner."""
        x, y, z = solid.centre
        at = self.turn @ (x, y + self.offset)
        centre = (float(at[0]), float(at[1]), float(z + self.ground(x, y)))
        return Solid(solid.shape, centre, solid.half, solid.label, solid.yaw + self.yaw, solid.brightness, solid.path)

    def cast_ground(self, rays: Rays) -> None:
        """Road, pavements above it, their kerbs between, and terrain or parking beyond."""
        dx, dy = np.tensordot(self.turn.T.astype(np.float32), rays.direction[:2], 1)
        down = rays.direction[2] - self.slope[0] * dx - self.slope[1] * dy
        with np.errstate(divide="ignore", invalid="ignore"):
            on_road, above = (np.where(down < 0, height / down, np.inf) for height in (-HEIGHT, self.kerb - HEIGHT))
            # the wall of the kerb is met where a ray is beside the road before it is down on it
            edge = (np.sign(dy) * self.half_width + self.offset) / dy
        y = np.abs(above * dy - self.offset)
        beyond = y > self.half_width
        kerb = ~beyond & (np.abs(on_road * dy - self.offset) > self.half_width)
        distance = np.where(beyond, above, np.where(kerb, edge, on_road))
        outside = CLASS["terrain"] if self.rng.random() < 0.7 else CLASS["parking"]
        beside = np.where(y > self.half_width + self.pavement, outside, CLASS["pavement"])
        label = np.where(beyond, beside, np.where(kerb, CLASS["pavement"], CLASS["road"]))
        shine = np.zeros(20, np.float32)
        shine[[CLASS[name] for name in ("road", "pavement", "terrain", "parking")]] = 0.2, 0.3, 0.38, 0.22
        rough = np.where(label == CLASS["terrain"], 0.08, 0.01) * self.rng.standard_normal(label.shape)
        distance = np.where(distance < 2 * FAR, distance + rough, np.inf)
        rays.hit(slice(None), distance.astype(np.float32), label, shine[label])

    def solids(self) -> Iterator[Solid]:
        """All that stands on the ground."""
        for side in (-1, 1):
            yield from self._houses(side)
            yield from self._along_the_pavement(side)
            yield from self._parked(side)
        yield from self._traffic()

    def _box(self, name: str, x, y, z, length, width, height, **more) -> Solid:
        return Solid("box", (x, y, z + height / 2), (length / 2, width / 2, height / 2), CLASS[name], **more)

    def _upright(self, name: str, x, y, radius, height, brightness) -> Solid:
        return Solid("cylinder", (x, y, height / 2), (radius, radius, height / 2), CLASS[name], brightness=brightness)

    def _houses(self, side: int) -> Iterator[Solid]:
        """Houses with gaps; in the gaps fences, hedges or nothing."""
        rng, x = self.rng, -LENGTH
        front = self.half_width + self.pavement + rng.uniform(0.2, 8.0)
        while x < LENGTH:
            length, depth, back = rng.uniform(8, 22), rng.uniform(8, 14), rng.uniform(0, 3)
            y = side * (front + back + depth / 2)
            shine = rng.uniform(0.15, 0.5)
            yield self._box("building", x + length / 2, y, -1, length, depth, rng.uniform(5, 14), brightness=shine)
            x += length
            gap, kind = rng.uniform(2, 14), rng.random()
            middle = x + gap / 2, side * (front + 0.5)
            if kind < 0.4:
                height = rng.uniform(1.0, 2.0)
                yield self._box("fence", *middle, 0, gap, 0.1, height, brightness=0.35, path=rng.uniform(0, 0.15))
            elif kind < 0.7:
                height = rng.uniform(1.0, 2.2)
                yield self._box("vegetation", *middle, 0, gap, 1.0, height, brightness=0.4, path=0.25)
            x += gap

    def _along_the_pavement(self, side: int) -> Iterator[Solid]:
        """Trees, lamps, signs, bushes and people."""
        rng, x = self.rng, -LENGTH + self.rng.uniform(0, 8)
        trees = rng.random() < 0.7
        while x < LENGTH:
            y = side * (self.half_width + rng.uniform(0.4, 0.8))
            kind = rng.random()
            if trees and kind < 0.5:
                yield from self._tree(x, y)
            elif kind < 0.75:
                height = rng.uniform(4, 8)
                yield self._upright("pole", x, y, rng.uniform(0.05, 0.12), height, rng.uniform(0.25, 0.5))
                if rng.random() < 0.6:
                    size = rng.uniform(0.5, 0.9)
                    yield self._box("traffic sign", x - 0.1, y, rng.uniform(2.0, 2.6), 0.08, size, size, brightness=0.9)
            else:
                size = rng.uniform(0.4, 1.2, 3)
                away = side * (self.half_width + self.pavement + rng.uniform(0.5, 2))
                yield Solid("ellipsoid", (x, away, 0.5), tuple(size), CLASS["vegetation"], brightness=0.4, path=0.3)
            if rng.random() < 0.35:
                walks = side * (self.half_width + rng.uniform(1.0, self.pavement))
                yield from self._person(x + rng.uniform(1, 4), walks)
            x += rng.uniform(5, 12)

    def _tree(self, x: float, y: float) -> Iterator[Solid]:
        rng = self.rng
        trunk, crown = rng.uniform(2.0, 3.5), rng.uniform(1.2, 3.0)
        yield self._upright("trunk", x, y, rng.uniform(0.12, 0.3), trunk + crown, 0.3)
        for _ in range(3):  # clusters of leaves
            at = np.array([x, y, trunk + 0.8 * crown]) + rng.normal(0, 0.35 * crown, 3)
            half = crown * rng.uniform(0.5, 0.9, 3)
            yield Solid("ellipsoid", tuple(at), tuple(half), CLASS["vegetation"], brightness=0.42, path=0.6)

    def _person(self, x: float, y: float) -> Iterator[Solid]:
        height, wide = self.rng.uniform(1.5, 1.9), self.rng.uniform(0.2, 0.3)
        body = height - 0.3
        yield Solid("ellipsoid", (x, y, body / 2), (wide, wide, body / 2), CLASS["person"], brightness=0.3)
        yield Solid("ellipsoid", (x, y, height - 0.15), (0.12, 0.12, 0.15), CLASS["person"], brightness=0.4)

    def _vehicle(self, x: float, y: float, yaw: float) -> Iterator[Solid]:
        """A car: body, and a cabin whose windows let some rays through. Or a truck: a cab and a load."""
        rng, shine = self.rng, self.rng.uniform(0.05, 0.8)
        along = lambda by: (x + by * np.cos(yaw), y + by * np.sin(yaw))
        if rng.random() < 0.06:
            length, height = rng.uniform(5, 8), rng.uniform(2.6, 3.5)
            yield self._box("truck", *along(-1), 0.6, length, 2.4, height, yaw=yaw, brightness=shine)
            yield self._box("truck", *along(length / 2), 0.4, 1.8, 2.2, 2.0, yaw=yaw, brightness=shine)
            return
        length, width = rng.uniform(3.6, 4.8), rng.uniform(1.6, 1.9)
        yield self._box("car", x, y, 0.25, length, width, 0.65, yaw=yaw, brightness=shine)
        half = (0.28 * length, 0.42 * width, 0.32)
        yield Solid("box", (*along(-0.05 * length), 1.2), half, CLASS["car"], yaw, shine, path=0.6)

    def _parked(self, side: int) -> Iterator[Solid]:
        rng, x = self.rng, -LENGTH + self.rng.uniform(0, 8)
        if self.offset * -side > self.half_width - 3.2:  # where the scanner drives
            return
        share = rng.uniform(0.3, 0.9)
        while x < LENGTH:
            if rng.random() < share:
                yield from self._vehicle(x, side * (self.half_width - 1.1), rng.normal(0, 0.03) + np.pi * (side > 0))
            x += rng.uniform(6, 9)

    def _traffic(self) -> Iterator[Solid]:
        """Vehicles before and behind in both lanes."""
        rng = self.rng
        for lane, yaw in ((-self.offset, 0.0), (self.offset, np.pi)):
            for sign in (-1, 1):
                if rng.random() < 0.6:
                    yield from self._vehicle(sign * rng.uniform(9, 45), lane, yaw + rng.normal(0, 0.05))
