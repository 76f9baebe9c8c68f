"""Tensors together: ``cat`` of channels, and the sum over all sites of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ops.grouped.segment_reduce import segment_reduce
from ...structures.segments import Segments
from .tensor import SparseTensor, check_same_sites, check_tensor

__all__ = ["cat", "generative_add"]


def cat(inputs: Sequence[SparseTensor]) -> SparseTensor:
    """Tensors on the same sites, one's channels after the other's. Raises ValueError for other sites."""
    tensors = [check_tensor("cat", x) for x in inputs]
    if not tensors:
        raise ValueError("cat takes at least one SparseTensor, got none")
    check_same_sites("cat", *tensors)
    return tensors[0].like(torch.cat([x.feats for x in tensors], 1))


def generative_add(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """The sum over the sites of both, in ascending order; a tensor is 0 where it has no site."""
    a, b = check_tensor("generative_add", a), check_tensor("generative_add", b)
    if a.stride != b.stride:
        raise ValueError(f"generative_add wants tensors of one stride, got {a} and {b}")
    first, second = (a, b) if len(a.feats) >= len(b.feats) else (b, a)
    coords, inverse = torch.unique(torch.cat([first.coords, second.coords]), dim=0, return_inverse=True)
    segments = Segments.from_index(inverse, len(coords))
    feats = segment_reduce(torch.cat([first.feats, second.feats]), segments, "sum")
    made = SparseTensor(feats, coords, first.stride, first.spatial_range)
    made._caches = first._caches
    return made
