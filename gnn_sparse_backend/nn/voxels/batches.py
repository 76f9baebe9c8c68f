"""Sparse tensors together and apart: batches, channels, and dense tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from ...ops.core.operands import check_dense
from ...runtime.memory import check_memory
from ...structures.coordinates import Coordinates, per_axis
from ...structures.coordinates.checked import MOST_AXES
from .tensor import Axes, SparseTensor, check_same_sites, check_sparse


def cat(tensors: Sequence[SparseTensor]) -> SparseTensor:
    """Tensors on the same sites, one's channels after the other's: (N, C of all of them)."""
    tensors = _checked("cat", tensors)
    check_same_sites("cat", *tensors)
    return tensors[0].with_features(torch.cat([x.features for x in tensors], 1))


def batch(tensors: Sequence[SparseTensor]) -> SparseTensor:
    """One tensor of the batches of all of these, in order: ``unbatch`` takes it apart.

    Raises ValueError unless they have one stride, spatial shape and number of axes and channels.
    """
    tensors = _checked("batch", tensors)
    first = tensors[0]
    for x in tensors:
        kinds = [(y.dim, y.stride, y.spatial_shape, y.shape[1:]) for y in (first, x)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"batch wants tensors of one stride, spatial shape and width, got {first!r} and {x!r}")
    rows, count = [], 0
    for x in tensors:
        step = torch.zeros_like(x.coordinates[:1])
        step[:, 0] = count
        rows.append(x.coordinates + step)
        count += x.batch_size
    dtype = functools.reduce(torch.promote_types, (x.dtype for x in rows))
    sites = Coordinates.of(torch.cat([x.to(dtype) for x in rows]), first.stride, count, first.spatial_shape)
    return SparseTensor._of(torch.cat([x.features for x in tensors]), sites)


def unbatch(x: SparseTensor) -> list[SparseTensor]:
    """A tensor of one batch, number 0, for each batch of ``x``; sites keep their order."""
    check_sparse("unbatch", x)
    segments = x.sites.of_batches
    order = torch.arange(len(x), device=x.device) if segments.order is None else segments.order
    parts = []
    for rows in order.split(segments.offsets.diff().tolist()):
        coordinates = x.coordinates.index_select(0, rows)
        coordinates[:, 0] = 0
        sites = Coordinates._make(coordinates, x.stride, 1, x.spatial_shape, ((0, 0), *x.sites.bounds[1:]))
        parts.append(SparseTensor._of(x.features.index_select(0, rows), sites))
    return parts


def to_dense(x: SparseTensor, shape: Sequence[int] | None = None, origin: Axes = 0) -> Tensor:
    """(batches, C, *shape), zeros where there is no site. Gradients flow to the features.

    Args:
        shape: cells along each axis; None: the tensor's ``spatial_shape``, or as many as hold all sites.
        origin: the coordinate of the first cell, an int or one for each axis.

    Raises ValueError that quotes the first site outside.
    """
    check_sparse("to_dense", x)
    low = per_axis("origin", origin, x.dim, -(2**62))
    if shape is None and x.spatial_shape is not None:
        shape = x.spatial_shape
    at = x.coordinates[:, 1:].long() - torch.tensor(low, device=x.device)
    if shape is None:
        shape = (at.amax(0) + 1).clamp(min=1).tolist() if len(x) else [1] * x.dim
    sizes = per_axis("shape", tuple(shape), x.dim, 0)
    outside = ((at < 0) | (at >= torch.tensor(sizes, device=x.device))).any(1)
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise ValueError(
            f"the site {x.coordinates[row].tolist()} is outside of a dense tensor of {sizes} cells from {low}: give "
            "another shape or origin"
        )
    check_memory("a dense tensor", (x.batch_size, *sizes, x.shape[1]), x.dtype.itemsize)
    dense = x.features.new_zeros((x.batch_size, *sizes, x.shape[1]))
    index = (x.coordinates[:, 0].long(), *at.unbind(1))
    return dense.index_put(index, x.features).movedim(-1, 1)


def from_dense(dense: Tensor, stride: Axes = 1) -> SparseTensor:
    """The cells of ``dense``, (batches, C, *shape) with 1 to 5 axes, which are not zero in every channel. Gradients
    flow to ``dense``. The result has ``shape`` as its ``spatial_shape``.
    """
    check_dense("from_dense", "dense", dense)
    if not 3 <= dense.dim() <= 2 + MOST_AXES:
        raise ValueError(
            f"from_dense: expected (batches, C, *shape) with 1 to {MOST_AXES} axes, got {tuple(dense.shape)}"
        )
    cells = dense.movedim(1, -1)
    coordinates = (cells.detach() != 0).any(-1).nonzero()
    return SparseTensor(cells[tuple(coordinates.unbind(1))], coordinates, stride, dense.shape[0], dense.shape[2:])


def _checked(what: str, tensors: Sequence[SparseTensor]) -> Sequence[SparseTensor]:
    if isinstance(tensors, SparseTensor) or not len(tensors):
        raise TypeError(f"{what} takes a list of at least one SparseTensor, got {tensors!r}")
    for x in tensors:
        check_sparse(what, x)
    return tensors
