"""``graclus_cluster`` and ``grid_cluster``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ..core.substitutes.scripted import public

if TYPE_CHECKING:
    from ...sampling import matching
    from ...structures import build
else:
    build, matching = later(__name__, "...structures.build"), later(__name__, "...sampling.matching")

_public = public("torch_cluster")


@_public
def graclus_cluster(row: Tensor, col: Tensor, weight: Tensor | None = None, num_nodes: int | None = None) -> Tensor:
    """Return (nodes,) int64 clusters of at most two nodes, which have an edge: each is called by its lower number.
    Nodes come in random order, and each takes the neighbour without a partner that has the largest weight, none of a
    weight below 0, or any.

    Args:
        row, col: (E,) int64, each edge in both directions. Edges from a node to itself are left out.
        weight: (E,) of the edges.
        num_nodes: by default the largest plus one.

    Raises ValueError for a node that there is not.
    """
    if num_nodes is None:
        num_nodes = max((int(index.max()) for index in (row, col) if index.numel()), default=-1) + 1
    device, (row, col) = row.device, (row.detach().cpu(), col.detach().cpu())
    if row.numel() and (min(int(row.min()), int(col.min())) < 0 or max(int(row.max()), int(col.max())) >= num_nodes):
        raise ValueError(f"graclus_cluster: nodes must be from 0 to {num_nodes - 1}, got edges of others")
    kept = row != col
    row, col = row[kept], col[kept]
    if weight is None:
        order = torch.randperm(row.shape[0])
        order = order[row[order].argsort(stable=True)]
    else:
        order = row.argsort(stable=True)
        weight = compared(weight)[kept][order]
    indptr = build.compress(row[order], num_nodes).to(torch.int64)
    return matching.matched(indptr, col[order], weight, torch.randperm(num_nodes)).to(device)


def compared(weight: Tensor) -> Tensor:
    """Weights on the host, in a type that kernels compare."""
    weight = weight.detach().cpu()
    return (weight if weight.dtype in (torch.float32, torch.float64, torch.int64) else weight.double()).contiguous()


@_public
def grid_cluster(pos: Tensor, size: Tensor, start: Tensor | None = None, end: Tensor | None = None) -> Tensor:
    """Return (N,) int64 the voxel of each point of a regular grid, numbered with the first axis fastest.

    Args:
        pos: (N, D), or (N,).
        size: (D,) of a voxel.
        start, end: (D,) corners of the grid; by default the least and the largest coordinates.

    Raises ValueError where ``size`` is not one number for each axis.
    """
    pos = pos.view(pos.shape[0], -1)
    if size.numel() != pos.shape[1]:
        raise ValueError(f"grid_cluster: size must have {pos.shape[1]} numbers, one for each axis, got {size.tolist()}")
    start = (pos.amin(0) if pos.shape[0] else pos.new_zeros(pos.shape[1])) if start is None else start
    end = (pos.amax(0) if pos.shape[0] else start) if end is None else end
    voxels = (end - start).true_divide(size).to(torch.int64) + 1
    strides = torch.cat([voxels.new_ones(1), voxels.cumprod(0)[:-1]])
    return ((pos - start).true_divide(size.view(1, -1)).to(torch.int64) * strides).sum(1)
