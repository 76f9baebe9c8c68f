"""``nn.union``: tensors on different sites, for arithmetic between them."""

from __future__ import annotations

import torch.nn.functional as F

from ...structures.coordinates import Coordinates, united
from .maps import kept
from .tensor import SparseTensor, check_sparse


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
    if all(x.sites is first.sites for x in others):
        return tensors
    sites, places = _united(first.sites, *(x.sites for x in others))
    count = sites.rows.shape[0]
    features = [F.pad(first.features, (0, 0, 0, count - len(first)))]
    for x, rows in zip(others, places):
        features.append(x.features.new_zeros((count, x.shape[1])).index_copy(0, rows, x.features))
    return tuple(SparseTensor._of(f, sites, first.path) for f in features)


@kept
def _united(first: Coordinates, *others: Coordinates):
    return united(first, others)
