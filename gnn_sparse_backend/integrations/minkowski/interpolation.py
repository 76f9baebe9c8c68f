"""Linear interpolation between sites and points, in both directions, as products with a sparse matrix of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from ...nn.voxels.maps import kept
from ...ops.message.api.spmm import spmm
from ...structures.graph import Graph

if TYPE_CHECKING:
    from .sparse_tensor import SparseTensor


class Corners(NamedTuple):
    """The sites around points: sites, points, weights of pairs."""

    sites: torch.Tensor
    points: torch.Tensor
    weights: torch.Tensor


def corners(x: SparseTensor, points: torch.Tensor) -> Corners:
    """The corners of the cells that hold (P, 1 + D) points, where ``x`` has sites."""
    return Corners(*x._manager.interpolation_map_weight(x.coordinate_map_key, points))


def at_points(features: torch.Tensor, pairs: Corners, count: int) -> torch.Tensor:
    """(P, channels) of features of sites."""
    return spmm(_graph(pairs.points, pairs.sites, (count, len(features))), features, pairs.weights)


def at_sites(features: torch.Tensor, pairs: Corners, count: int) -> torch.Tensor:
    """(N, channels) of features of points."""
    return spmm(_graph(pairs.sites, pairs.points, (count, len(features))), features, pairs.weights)


@kept
def _graph(rows: torch.Tensor, columns: torch.Tensor, shape: tuple[int, int]) -> Graph:
    return Graph.from_coo(rows, columns, shape)
