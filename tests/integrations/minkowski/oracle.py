"""MinkowskiEngine's layers in float64 by a dictionary of coordinates, one site and one offset at a time."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

Site = tuple[int, ...]


def random_sites(count: int, dim: int, side: int = 4, batches: int = 2, stride: int = 1) -> Tensor:
    """(at most ``count``, 1 + dim) distinct coordinates around the origin, in no order."""
    axes = [torch.randint(batches, (count,)), *(torch.randint(-side, side, (count,)) * stride for _ in range(dim))]
    rows = torch.stack(axes, 1).unique(dim=0)
    return rows[torch.randperm(len(rows))].int()


def rows_of(coordinates: Tensor) -> dict[Site, int]:
    found = {tuple(site): row for row, site in enumerate(coordinates.tolist())}
    assert len(found) == len(coordinates), "a site is there once"
    return found


def cube(size, dilation, stride) -> list[Site]:
    """The first axis fastest; an odd kernel around the site, an even one from it on."""
    axes = [[(i - k // 2 if k % 2 else i) * d * t for i in range(k)] for k, d, t in zip(size, dilation, stride)]
    return [tuple(reversed(each)) for each in itertools.product(*reversed(axes))]


def cross(size, dilation, stride) -> list[Site]:
    """The site, then axis by axis what is ahead, from near to far, and what is behind, from far to near."""
    found = [(0,) * len(size)]
    for axis, (k, d, t) in enumerate(zip(size, dilation, stride)):
        r = k // 2
        for step in [*range(1, r + 1), *range(-r, 0)]:
            found.append(tuple(step * d * t if each == axis else 0 for each in range(len(size))))
    return found


def moved(site: Site, offset: Site, sign: int = 1) -> Site:
    return (site[0], *(c + sign * o for c, o in zip(site[1:], offset)))


def pairs(
    inputs: Tensor, outputs: Tensor, offsets: list[Site], transposed: bool = False
) -> list[list[tuple[int, int]]]:
    """(input, output) of each offset: the input is at the output plus the offset, or the reverse."""
    at = rows_of(inputs)
    found = []
    for offset in offsets:
        met = ((moved(site, offset, -1 if transposed else 1), row) for site, row in rows_of(outputs).items())
        found.append([(at[site], row) for site, row in met if site in at])
    return found


def convolved(features: Tensor, kernel: Tensor, met: list[list[tuple[int, int]]], count: int) -> Tensor:
    """(count, C_out), differentiable."""
    out = features.new_zeros((count, kernel.shape[-1]))
    for weight, each in zip(kernel, met):
        if each:
            i, o = torch.tensor(each).t()
            out = out.index_add(0, o, features[i] @ weight)
    return out


def strided(coordinates: Tensor, steps) -> set[Site]:
    """The cells of a grid with this distance between neighbours which hold a site."""
    return {(b, *(math.floor(c / s) * s for c, s in zip(site, steps))) for b, *site in coordinates.tolist()}


def sites_in(coordinates: Tensor) -> set[Site]:
    return set(rows_of(coordinates))


def interpolated(features: Tensor, coordinates: Tensor, points: Tensor, steps) -> Tensor:
    """Linear interpolation; sites that are not there are 0."""
    at, found = rows_of(coordinates), []
    for b, *point in points.tolist():
        total = 0 * features.sum(0)
        low = [math.floor(c / s) * s for c, s in zip(point, steps)]
        for corner in itertools.product((0, 1), repeat=len(low)):
            site = (round(b), *(c + k * s for c, k, s in zip(low, corner, steps)))
            if site in at:
                weight = math.prod(1 - abs(p - c) / s for p, c, s in zip(point, site[1:], steps))
                total = total + weight * features[at[site]]
        found.append(total)
    return torch.stack(found) if found else features[:0]


def same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)


def same_gradients(found: Tensor, wanted: Tensor, operands: list[Tensor]) -> None:
    """Equal values, and equal gradients of all operands."""
    same(found, wanted)
    cotangent = torch.randn_like(wanted)
    for ours, theirs in zip(
        torch.autograd.grad(found, operands, cotangent, retain_graph=True, allow_unused=True),
        torch.autograd.grad(wanted, operands, cotangent, retain_graph=True, allow_unused=True),
    ):
        same(*(torch.zeros(()) if each is None else each for each in (ours, theirs)))
