"""``nn.interpolate``: the features of a sparse tensor at points between its sites."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from ...ops.core.operands import check_dense
from ...ops.message.api.spmm import spmm
from ...ops.message.checks import check_choice
from ...structures.checks import check_integers, check_range
from ...structures.coordinates import Coordinates
from ...structures.graph import Graph
from .maps import kept
from .tensor import SparseTensor, check_sparse

MODES = ("linear", "nearest")


def interpolate(x: SparseTensor, points: Tensor, mode: str = "linear") -> Tensor:
    """The features of ``x`` at points: what voxels say of the points in them.

    Args:
        points: (P, 1 + D) floating numbers, the batch first, in cells of the finest grid: divided by the stride of
            ``x`` they are in cells of its own.
        mode: ``"nearest"``: those of the voxel that holds the point, which is ``floor`` of its position; ``"linear"``:
            those of the 2^D sites around it, weighted by how near they are, where site c is at position c, as in
            MinkowskiEngine and torchsparse.

    Returns:
        (P, C) in the type of the features; sites that do not exist count as zeros. Gradients of any order flow to the
        features, and none to the points.

    Raises:
        TypeError, ValueError: an argument is not as above, or a point is not finite; the first bad one is quoted.
    """
    check_sparse("interpolate", x)
    check_dense("interpolate", "points", points)
    check_choice("interpolate", "mode", mode, MODES)
    if points.dim() != 2 or points.shape[1] != 1 + x.dim or points.device != x.device:
        raise ValueError(
            f"interpolate: points must have shape (P, {1 + x.dim}), the batch first, on {x.device}, got "
            f"{tuple(points.shape)} on {points.device}"
        )
    rows, weights = _around(x.sites, points, mode)
    return blend(x.features, rows, weights)


def blend(features: Tensor, rows: Tensor, weights: Tensor | None = None) -> Tensor:
    """``out[p] = sum over k of weights[p, k] * features[rows[p, k]]``: points made of few rows each.

    Args:
        features: (N, C) in float32, float64, bfloat16 or float16.
        rows: (P, K) integers, -1 for none.
        weights: (P, K), of any floating type; None: ones.

    Returns:
        (P, C) in the type of the features. Gradients of any order flow to features and weights.

    Raises:
        TypeError, ValueError: an argument is not as above; the first bad row is quoted.
    """
    check_dense("blend", "features", features)
    if not isinstance(rows, Tensor) or rows.dim() != 2 or features.dim() != 2:
        raise ValueError(f"blend: features (N, C) and rows (P, K) are matrices, got {features!r} and {rows!r}")
    check_integers("blend: rows", rows)
    if weights is not None and weights.shape != rows.shape:
        raise ValueError(f"blend: weights must have the shape of rows, {tuple(rows.shape)}, got {tuple(weights.shape)}")
    there = rows >= 0
    if weights is not None:
        weights = weights[there].to(features.dtype)
    return spmm(_graph(rows, there, features.shape[0]), features, weights)


@kept
def _graph(rows: Tensor, there: Tensor, count: int) -> Graph:
    sources = rows[there]
    check_range("blend: rows", sources, count, "rows of features")
    indptr = torch.zeros(rows.shape[0] + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(there.sum(1), 0, out=indptr[1:])
    return Graph.from_csr(indptr, sources, (rows.shape[0], count))


@kept
def _around(sites: Coordinates, points: Tensor, mode: str) -> tuple[Tensor, Tensor | None]:
    """(rows of the sites around each point, their weights)."""
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
        return sites.rows_of(base.long())[:, None], None
    part = (at - base)[:, 1:]
    corners = torch.tensor(list(itertools.product((0, 1), repeat=sites.dim)), device=points.device)
    around = base.long()[:, None].repeat(1, len(corners), 1)
    around[:, :, 1:] += corners
    weights = torch.where(corners.bool(), part[:, None], 1 - part[:, None]).prod(-1)
    return sites.rows_of(around.flatten(0, 1)).view(weights.shape), weights
