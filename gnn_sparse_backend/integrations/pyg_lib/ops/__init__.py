"""``pyg_lib.ops``: products by segment, arithmetic on rows that are looked up, sorts, softmax, and, from the faces of
torch-scatter, torch-cluster and torch-spline-conv, reductions, clusters, points and splines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ....deferred import later
from ...core.substitutes.scripted import public
from ...torch_cluster import batches, walks
from ...torch_cluster.clusters import compared, grid_cluster
from ...torch_cluster.fps import sampled
from ...torch_scatter import (
    composite,
    gather_coo,
    gather_csr,
    scatter,
    scatter_logsumexp,
    scatter_max,
    scatter_mean,
    scatter_min,
    scatter_mul,
    scatter_softmax,
    scatter_sum,
    segment_coo,
    segment_csr,
    segment_max_coo,
    segment_max_csr,
    segment_mean_coo,
    segment_mean_csr,
    segment_min_coo,
    segment_min_csr,
    segment_sum_coo,
    segment_sum_csr,
)
from ...torch_sparse import utils
from ...torch_spline_conv import spline_basis, spline_weighting

if TYPE_CHECKING:
    from ....ops.attention import operators as softmaxes
    from ....ops.grouped import api as grouped
    from ....sampling import matching
    from ... import lazy
    from ...core import graphs
else:
    softmaxes, grouped = (
        later(f"{__name__}.", "....ops.attention.operators"),
        later(f"{__name__}.", "....ops.grouped.api"),
    )
    matching, graphs = later(f"{__name__}.", "....sampling.matching"), later(f"{__name__}.", "...core.graphs")
    lazy = later(f"{__name__}.", "...lazy")

_counted = public("pyg_lib")
scatter_add, segment_add_coo, segment_add_csr = scatter_sum, segment_sum_coo, segment_sum_csr


@_counted
def grouped_matmul(inputs: list[Tensor], others: list[Tensor], biases: list[Tensor] | None = None) -> list[Tensor]:
    """Multiply each matrix (N_i, K_i) with the one (K_i, M_i) at its place, and add the bias (M_i,) there."""
    products = [x @ other for x, other in zip(inputs, others, strict=True)]
    return products if biases is None else [x + bias for x, bias in zip(products, biases, strict=True)]


@_counted
def segment_matmul(inputs: Tensor, ptr: Tensor, other: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply the rows (N, K) of each segment, which begins at ``ptr`` (B + 1,), with its matrix of (B, K, M), and add
    its bias of (B, M). Raises ValueError where the pointers are not those of N rows.
    """
    lengths = ptr.to(inputs.device).diff()
    out = grouped.segment_mm(inputs, other, lengths)
    return out if bias is None else out + bias.repeat_interleave(lengths, 0)


def _sampled(name: str, how: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def sampled(
        left: Tensor, right: Tensor, left_index: Tensor | None = None, right_index: Tensor | None = None
    ) -> Tensor:
        left = left if left_index is None else left.index_select(0, left_index)
        return how(left, right if right_index is None else right.index_select(0, right_index))

    sampled.__name__ = sampled.__qualname__ = f"sampled_{name}"
    sampled.__doc__ = f"``{name}`` of the rows of two tensors, looked up where there is an index (n,)."
    return _counted(sampled)


sampled_add = _sampled("add", torch.add)
sampled_sub = _sampled("sub", torch.sub)
sampled_mul = _sampled("mul", torch.mul)
sampled_div = _sampled("div", torch.div)


@_counted
def index_sort(inputs: Tensor, max_value: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the numbers (n,), integers of at most ``max_value`` that are not negative, in ascending order, and where
    each was. Raises RuntimeError for what is no vector.
    """
    if inputs.dim() != 1:
        raise RuntimeError(f"index_sort sorts a vector, got {tuple(inputs.shape)}")
    return utils.index_sort(inputs, max_value)


@_counted
def softmax_csr(src: Tensor, ptr: Tensor, dim: int = 0) -> Tensor:
    """Return the softmax of each segment along ``dim``, which begins at ``ptr``."""
    dim = dim % src.dim()
    x = src.movedim(dim, 0)
    if lazy.refuse(x) is None and ptr.device == src.device:
        graph = graphs.GRAPHS.find("segments", ptr, ptr, (ptr.numel() - 1, x.shape[0]))
        found = softmaxes.softmax_segments(graph, x)
        return (found.clone() if found.requires_grad else found).movedim(0, dim)
    index = utils.ptr2ind(ptr, x.shape[0])
    return composite.scatter_softmax.__wrapped__(src, index, dim, max(ptr.numel() - 1, 0))


@_counted
def scatter_std(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: Tensor | None = None,
    dim_size: int | None = None,
    unbiased: bool = True,
) -> Tensor:
    """Return the standard deviation of the numbers of each row, as torch-scatter does. Raises ValueError for
    integers.
    """
    if not src.is_floating_point():
        raise ValueError(f"scatter_std wants floating-point numbers, got {src.dtype}")
    return composite.scatter_std.__wrapped__(src, index, dim, out, dim_size, unbiased)


@_counted
def scatter_log_softmax(
    src: Tensor, index: Tensor, dim: int = -1, dim_size: int | None = None, eps: float = 1e-12
) -> Tensor:
    """Return the logarithm of the softmax over the numbers of each row, as torch-scatter does, whose arguments come in
    another order.
    """
    return composite.scatter_log_softmax.__wrapped__(src, index, dim, eps, dim_size)


@_counted
def fps(src: Tensor, ptr: Tensor, ratio: float = 0.5, random_start: bool = True) -> Tensor:
    """Return numbers of points (N, D) that are far from each other: ``ratio`` of those of each batch, which begins at
    ``ptr``, rounded up.
    """
    return sampled(src, ptr, torch.tensor(ratio), random_start)


@_counted
def knn(
    x: Tensor,
    y: Tensor,
    k: int = 1,
    ptr_x: Tensor | None = None,
    ptr_y: Tensor | None = None,
    cosine: bool = False,
    num_workers: int = 1,
) -> Tensor:
    """Return edges (2, E) from each of ``y`` (M, D) to the k nearest of ``x`` (N, D) within its batch, as
    `torch_cluster` does; batches begin at the pointers.
    """
    return batches.nearest_edges(x, y, k, *_batches(ptr_x, ptr_y, cosine=cosine))


@_counted
def radius(
    x: Tensor,
    y: Tensor,
    r: float = 1.0,
    ptr_x: Tensor | None = None,
    ptr_y: Tensor | None = None,
    max_num_neighbors: int = 32,
    num_workers: int = 1,
    ignore_same_index: bool = False,
) -> Tensor:
    """Return edges (2, E) from each of ``y`` to points of ``x`` nearer than ``r``, as `torch_cluster` does; batches
    begin at the pointers.
    """
    of_x, of_y, _, size = _batches(ptr_x, ptr_y, cosine=False)
    return batches.edges_within(x, y, r, of_x, of_y, max_num_neighbors, size, ignore_same_index, False)


@_counted
def nearest(x: Tensor, y: Tensor, ptr_x: Tensor | None = None, ptr_y: Tensor | None = None) -> Tensor:
    """Return (N,) the point of ``y`` that is nearest to each of ``x`` within its batch. Raises ValueError for a batch
    that only one of both has.
    """
    of_x, of_y, cosine, size = _batches(ptr_x, ptr_y, cosine=False)
    if of_x is not None and not torch.equal(of_x.unique_consecutive(), of_y.unique_consecutive()):
        raise ValueError("Some batch indices occur in 'ptr_x' that do not occur in 'ptr_y', or the other way")
    return batches.nearest_edges(y, x, 1, of_y, of_x, cosine, size)[1]


def _batches(
    ptr_x: Tensor | None, ptr_y: Tensor | None, cosine: bool
) -> tuple[Tensor | None, Tensor | None, bool, int | None]:
    if ptr_x is None and ptr_y is None:
        return None, None, cosine, None
    if ptr_x is None or ptr_y is None:
        raise ValueError(f"pointers say where batches begin in both or in neither, got {ptr_x} and {ptr_y}")
    rows = (utils.ptr2ind(ptr, int(ptr[-1]) - int(ptr[0])) for ptr in (ptr_x, ptr_y))
    return *rows, cosine, max(ptr_x.numel() - 1, 1)


@_counted
def graclus_cluster(rowptr: Tensor, col: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return (N,) clusters of at most two nodes, as `torch_cluster` does, of edges by rows."""
    given = None if weight is None else compared(weight)
    nodes = rowptr.numel() - 1
    found = matching.matched(rowptr.cpu().contiguous(), col.cpu().contiguous(), given, torch.randperm(nodes))
    return found.to(rowptr.device)


@_counted
def edge_sample(start: Tensor, rowptr: Tensor, count: int = 0, factor: float = 1.0) -> Tensor:
    """Return edges out of each of ``start``, drawn without replacement: ``count`` of a node, or where that is below 1
    ``factor`` of its edges, rounded up.
    """
    return walks.edges_drawn(start, rowptr, count, factor)


__all__ = [
    "edge_sample",
    "fps",
    "gather_coo",
    "gather_csr",
    "graclus_cluster",
    "grid_cluster",
    "grouped_matmul",
    "index_sort",
    "knn",
    "nearest",
    "radius",
    "sampled_add",
    "sampled_div",
    "sampled_mul",
    "sampled_sub",
    "scatter",
    "scatter_add",
    "scatter_log_softmax",
    "scatter_logsumexp",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_mul",
    "scatter_softmax",
    "scatter_std",
    "scatter_sum",
    "segment_add_coo",
    "segment_add_csr",
    "segment_coo",
    "segment_csr",
    "segment_matmul",
    "segment_max_coo",
    "segment_max_csr",
    "segment_mean_coo",
    "segment_mean_csr",
    "segment_min_coo",
    "segment_min_csr",
    "segment_sum_coo",
    "segment_sum_csr",
    "softmax_csr",
    "spline_basis",
    "spline_weighting",
]
