"""``knn``, ``knn_graph`` and ``nearest``."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.substitutes.scripted import public
from .batches import directed, first_of_each, nearest_edges

_public = public("torch_cluster")


@_public
def knn(
    x: Tensor,
    y: Tensor,
    k: int,
    batch_x: Tensor | None = None,
    batch_y: Tensor | None = None,
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> Tensor:
    """Find the k points of ``x`` (N, D) that are nearest to each of ``y`` (M, D), within its batch.

    Args:
        batch_x, batch_y: (N,) and (M,) integers that ascend.
        cosine: measure by the angle at the origin.
        num_workers: is not looked at; PyTorch's number of threads counts.
        batch_size: of batches; by default the largest plus one.

    Returns (2, E) int64 with numbers of ``y`` in ascending order and of ``x``, the nearest first, of equally near ones
    the lower number. A batch of fewer points has all of them. Raises ValueError for points that are not finite.
    """
    return nearest_edges(x, y, k, batch_x, batch_y, cosine, batch_size)


@_public
def knn_graph(
    x: Tensor,
    k: int,
    batch: Tensor | None = None,
    loop: bool = False,
    flow: str = "source_to_target",
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> Tensor:
    """Return edges (2, E) from the k nearest points to each, and with ``loop`` the point itself among them; in the
    other direction with ``flow="target_to_source"``. The rest is as in `knn`.
    """
    edges = nearest_edges(x, x, k if loop else k + 1, batch, batch, cosine, batch_size)
    if not loop:  # more than k where equal points stand before the point itself
        edges = first_of_each(edges[:, edges[0] != edges[1]], k)
    return directed(edges, flow)


@_public
def nearest(x: Tensor, y: Tensor, batch_x: Tensor | None = None, batch_y: Tensor | None = None) -> Tensor:
    """Return (N,) int64 the point of ``y`` (M, D) that is nearest to each of ``x`` (N, D) within its batch.

    Raises ValueError where batches do not ascend, or are not the same in ``x`` and ``y``.
    """
    for name, batch in (("batch_x", batch_x), ("batch_y", batch_y)):
        if batch is not None and bool((batch.diff() < 0).any()):
            raise ValueError(f"'{name}' is not sorted")
    if batch_x is None and batch_y is not None:
        batch_x = batch_y.new_zeros(x.shape[0])
    if batch_y is None and batch_x is not None:
        batch_y = batch_x.new_zeros(y.shape[0])
    if batch_x is not None and batch_y is not None:
        if not torch.equal(batch_x.unique_consecutive(), batch_y.unique_consecutive()):
            raise ValueError("Some batch indices occur in 'batch_x' that do not occur in 'batch_y', or the other way")
    return nearest_edges(y, x, 1, batch_y, batch_x, False, None)[1]
