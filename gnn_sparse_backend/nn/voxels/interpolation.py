"""``nn.interpolate``: the features of a sparse tensor at points between its sites."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops.convolution.traced_places import traced_around
from ...ops.core.operands import check_dense
from ...ops.core.traced import Traced
from ...ops.message.api.spmm import spmm
from ...ops.message.checks import check_choice
from ...ops.message.message_op import MessageText
from ...ops.message.operators import AGGREGATE
from ...structures.checks import check_integers, check_range
from ...structures.coordinates import Coordinates, around
from ...structures.coordinates.around import MODES
from ...structures.graph import Graph
from .maps import kept
from .tensor import SparseTensor, check_sparse
from .traced import traced


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
    if torch.compiler.is_compiling():
        sites = traced(x.sites)
        rows, weights = traced_around(sites.begin, sites.batch_size, sites.how, points, mode)
    else:
        rows, weights = _around(x.sites, points, mode)
    return blend(x.features, rows, None if mode == "nearest" else weights)


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
    if torch.compiler.is_compiling():
        return _in_program(features, rows, there, weights)
    return spmm(_graph(rows, there, features.shape[0]), features, weights)


def _in_program(features: Tensor, rows: Tensor, there: Tensor, weights: Tensor | None) -> Tensor:
    """Rows that are no row of the features are refused when the program runs."""
    indptr = F.pad(there.sum(1).cumsum(0), (1, 0))
    graph = Traced((indptr, rows[there], None, features.shape[0]))
    if weights is None:
        return AGGREGATE(graph, (features,), (MessageText("x0", ("column",), "sum"),))
    return AGGREGATE(graph, (features, weights), (MessageText("mul(x1, x0)", ("column", "edge"), "sum"),))


@kept
def _graph(rows: Tensor, there: Tensor, count: int) -> Graph:
    sources = rows[there]
    check_range("blend: rows", sources, count, "rows of features")
    indptr = torch.zeros(rows.shape[0] + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(there.sum(1), 0, out=indptr[1:])
    return Graph.from_csr(indptr, sources, (rows.shape[0], count))


@kept
def _around(sites: Coordinates, points: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    return around(sites, points, mode)
