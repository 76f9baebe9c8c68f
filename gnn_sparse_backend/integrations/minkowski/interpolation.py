"""Linear interpolation between sites and points, in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ... import nn
from ...nn.voxels.maps import kept
from ...ops.message.api.spmm import spmm
from ...structures.graph import Graph
from .key import CoordinateMapKey
from .store import reversed_axes

if TYPE_CHECKING:
    from .manager import CoordinateManager
    from .tensor import Tensor


def at_points(x: Tensor, points: torch.Tensor) -> torch.Tensor:
    """(P, channels) of a sparse tensor at (P, 1 + D) points, the batch first; sites that are not there are 0."""
    sites = x._manager.sites(x._key)
    return nn.interpolate(nn.SparseTensor._of(x.F, sites), reversed_axes(points))


def at_sites(
    features: torch.Tensor, points: torch.Tensor, manager: CoordinateManager, key: CoordinateMapKey
) -> torch.Tensor:
    """(N, channels) of the sites of a key: features of (P, 1 + D) points, shared out by the same weights."""
    sites, of, weights = manager.interpolation_map_weight(key, points)
    return spmm(_graph(sites, of, (manager.size(key), len(features))), features, weights.to(features.dtype))


@kept
def _graph(rows: torch.Tensor, columns: torch.Tensor, shape: tuple[int, int]) -> Graph:
    return Graph.from_coo(rows, columns, shape)
