"""``nn.union``: tensors on different sites, for arithmetic between them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ...structures.coordinates import Coordinates, united
from .maps import kept
from .tensor import SparseTensor, check_sparse
from .traced import traced
from .traced import united as united_in_program


def union(*tensors: SparseTensor) -> tuple[SparseTensor, ...]:
    """Each tensor on the sites of all of them, with zeros where it had none.

        x, y = nn.union(x, y)
        z = x + y

    The sites are those of the first tensor, in their order, then those that the second one adds, in their order, and so
    on; where nothing is added they are the first tensor's own, with its kernel maps. All results have the way back of
    the first one: a transposed or inverse layer returns to the sites that it came from.

    Args:
        tensors: any number of them, on grids of one stride and spatial shape; channels and types may differ.

    Returns:
        As many tensors, on the same sites, in their own types. Gradients of any order flow to the features.

    Raises:
        TypeError, ValueError: there is none, or they are on grids of different strides, shapes, axes or devices.
    """
    if not tensors:
        raise TypeError("union takes at least one SparseTensor, got none")
    for x in tensors:
        check_sparse("union", x)
    first, *others = tensors
    for x in others:
        kinds = [(y.dim, y.stride, y.spatial_shape, y.device) for y in (first, x)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"union wants tensors on one grid, got {first!r} and {x!r}")
    if torch.compiler.is_compiling():
        every = [traced(x.sites) for x in tensors]
        if all(each.same_as(every[0]) for each in every):
            return tensors
        sites, places = united_in_program(every)
    elif all(x.sites is first.sites for x in others):
        return tensors
    else:
        sites, places = _united(first.sites, *(x.sites for x in others))
    count = sites.rows.shape[0]
    return tuple(SparseTensor._of(_at(x.features, at, count), sites, first.path) for x, at in zip(tensors, places))


def _at(features: Tensor, rows: Tensor | None, count: int) -> Tensor:
    """Features at some of ``count`` rows, the first ones where none are named, and zeros at the others."""
    if rows is None:
        return F.pad(features, (0, 0, 0, count - features.shape[0]))
    return features.new_zeros(count, features.shape[1]).index_copy(0, rows, features)


@kept
def _united(first: Coordinates, *others: Coordinates) -> tuple[Coordinates, Sequence[Tensor | None]]:
    sites, places = united(first, others)
    return sites, (None, *places)
