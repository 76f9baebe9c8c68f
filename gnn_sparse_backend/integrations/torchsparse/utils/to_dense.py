"""A dense tensor of sites."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ....runtime.memory import check_memory
from ..conventions import convention

__all__ = ["to_dense"]


def to_dense(feats: Tensor, coords: Tensor, spatial_range: Sequence[int]) -> Tensor:
    """(*spatial_range, C), zeros where there is no site. Gradients flow to ``feats``.

    Args:
        feats: (N, C).
        coords: (N, 4), within ``spatial_range``: (batches, X, Y, Z).

    Raises ValueError that quotes the first site outside.
    """
    order = coords if convention().batch == 0 else coords[:, [3, 0, 1, 2]]
    sizes = torch.tensor(tuple(spatial_range), device=coords.device)
    outside = ((order < 0) | (order >= sizes)).any(1)
    if bool(outside.any()):
        at = int(outside.nonzero()[0])
        raise ValueError(f"coords[{at}] = {coords[at].tolist()} is outside of the range {tuple(spatial_range)}")
    check_memory("a dense tensor", (*spatial_range, feats.shape[1]), feats.dtype.itemsize)
    return feats.new_zeros((*spatial_range, feats.shape[1])).index_put(tuple(order.long().unbind(1)), feats)
