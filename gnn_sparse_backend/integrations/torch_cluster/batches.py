"""Points in batches, and edges between those that are near each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ...sampling.seeds import drawn_seed
from ...structures.points.clouds import Cloud, begins_of, checked_points

if TYPE_CHECKING:
    from ...sampling import draws
    from ...structures.points import search
else:
    draws, search = later(__name__, "...sampling.draws"), later(__name__, "...structures.points.search")


def nearest_edges(
    x: Tensor,
    y: Tensor,
    k: int,
    batch_x: Tensor | None,
    batch_y: Tensor | None,
    cosine: bool,
    batch_size: int | None,
) -> Tensor:
    """(2, E) numbers of ``y`` and of the k nearest of ``x`` within its batch, as `knn` says."""
    if x.numel() == 0 or y.numel() == 0:
        return torch.empty(2, 0, dtype=torch.int64, device=x.device)
    if cosine:  # of vectors on a sphere the squared distance is twice the cosine distance
        x, y = (torch.nn.functional.normalize(z.view(z.shape[0], -1).double(), dim=1) for z in (x, y))
    points, queries = clouds_of("knn", x, y, batch_x, batch_y, batch_size)
    return search.nearest(points, queries, k).to(x.device)


def edges_within(
    x: Tensor,
    y: Tensor,
    r: float,
    batch_x: Tensor | None,
    batch_y: Tensor | None,
    most: int,
    batch_size: int | None,
    same: bool,
    nearest_first: bool,
) -> Tensor:
    """(2, E) numbers of ``y`` and of points of ``x`` nearer than ``r`` within its batch, as `radius` says. same: leave
    out the point that has the number of the query.
    """
    if x.numel() == 0 or y.numel() == 0:
        return torch.empty(2, 0, dtype=torch.int64, device=x.device)
    points, queries = clouds_of("radius", x, y, batch_x, batch_y, batch_size)
    if not nearest_first:
        return search.within(points, queries, r, most, same, draws.stream_of(drawn_seed())).to(x.device)
    edges = search.nearest(points, queries, most + same, r * r).to(x.device)
    return first_of_each(edges[:, edges[0] != edges[1]], most) if same else edges


def clouds_of(
    name: str, x: Tensor, y: Tensor, batch_x: Tensor | None, batch_y: Tensor | None, batch_size: int | None
) -> tuple[Cloud, Cloud]:
    """The clouds of points and of queries, (N, D) and (M, D), or (N,) and (M,) of one coordinate.

    Raises ValueError for other shapes, points that are not finite, and batches that do not ascend.
    """
    same = x is y and batch_x is batch_y
    x, y = (z.view(-1, 1) if z.dim() == 1 else z for z in (x, y))
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"{name}: x and y must be (N, D) and (M, D), got {tuple(x.shape)} and {tuple(y.shape)}")
    if batch_size is None:
        batches = (batch_x,) if same else (batch_x, batch_y)
        largest = (int(batch.max()) for batch in batches if batch is not None and batch.numel())
        batch_size = max(largest, default=0) + 1
    if batch_size < 1:
        raise ValueError(f"{name}: batch_size must be at least 1, got {batch_size}")
    if batch_size > 1 and (batch_x is None or batch_y is None):
        missing = "batch_x" if batch_x is None else "batch_y"
        raise ValueError(f"{name}: there are {batch_size} batches, but no {missing} says which point is of which")
    points = checked_points("x", x)
    if same:
        cloud = Cloud(points, begins_of("batch_x", batch_x, points.shape[0], batch_size))
        return cloud, cloud
    queries = checked_points("y", y)
    dtype = torch.promote_types(points.dtype, queries.dtype)
    return (
        Cloud(points.to(dtype), begins_of("batch_x", batch_x, points.shape[0], batch_size)),
        Cloud(queries.to(dtype), begins_of("batch_y", batch_y, queries.shape[0], batch_size)),
    )


def first_of_each(edges: Tensor, most: int) -> Tensor:
    """The first ``most`` edges (2, E) of each query, by which they ascend."""
    queries = edges[0].contiguous()
    rank = torch.arange(queries.numel(), device=edges.device) - torch.searchsorted(queries, queries)
    return edges[:, rank < most]


def directed(edges: Tensor, flow: str) -> Tensor:
    """Edges (2, E) from queries to points in the direction of messages. Raises ValueError for another ``flow``."""
    if flow not in ("source_to_target", "target_to_source"):
        raise ValueError(f"flow must be 'source_to_target' or 'target_to_source', got {flow!r}")
    return edges.flip(0) if flow == "source_to_target" else edges
