"""The sites around points between them."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from .sites import Coordinates

MODES = ("linear", "nearest")


def corners_of(dim: int, mode: str) -> int:
    """How many sites there are around a point."""
    return 2**dim if mode == "linear" else 1


def around(sites: Coordinates, points: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """The sites around each of points (P, 1 + D), whose positions are in cells of the finest grid.

    Returns:
        (rows, weights), each (P, `corners_of`): the row of each site in int64, -1 where there is none, and how near it
        is in float64, which add up to 1.

    Raises:
        ValueError: a batch is no whole number, or a position is not finite; the first such point is quoted.
    """
    points = points.detach().double()
    bad = ~(points.abs() < 2**52).all(1) | (points[:, 0] != points[:, 0].floor())
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        raise ValueError(
            f"interpolate: points[{at}] = {points[at].tolist()} is no whole batch and finite position within 2**52"
        )
    at = points / torch.tensor((1, *sites.stride), device=points.device)
    base = at.floor()
    if mode == "nearest":
        rows = sites.rows_of(base.long())[:, None]
        return rows, torch.ones_like(rows, dtype=torch.float64)
    part = (at - base)[:, 1:]
    corners = torch.tensor(list(itertools.product((0, 1), repeat=sites.dim)), device=points.device)
    found = base.long()[:, None].repeat(1, len(corners), 1)
    found[:, :, 1:] += corners
    weights = torch.where(corners.bool(), part[:, None], 1 - part[:, None]).prod(-1)
    return sites.rows_of(found.flatten(0, 1)).view(weights.shape), weights
