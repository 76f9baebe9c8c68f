"""Gradients of maxima and minima over modes: shared by the elements that are equal, as those of PyTorch's ``amax``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .storage.stored import Stored
from .storage.values import accumulator, dtype_name


def recorded_extreme(whole: Stored, found: Stored, modes: tuple[int, ...], absent: np.ndarray | None) -> Any:
    """The values of `found`, the extremes of `whole` over modes, which remember where they came from.

    absent: for each of them the number of elements that are not stored.
    """
    at, positions = whole.structure.coordinates()
    place = np.zeros(at.shape[1], np.int64)
    for mode, extent in enumerate(whole.shape):
        if mode not in modes:
            place = place * extent + at[mode]
    zeros = torch.zeros(len(found.values), dtype=torch.int64) if absent is None else torch.from_numpy(absent)
    where = torch.from_numpy(place), torch.from_numpy(positions), zeros
    return _Extreme.apply(whole.values, found.values, *where)


class _Extreme(torch.autograd.Function):  # type: ignore[misc]  # PyTorch is not read
    @staticmethod
    def forward(ctx: Any, values: Any, found: Any, place: Any, positions: Any, absent: Any) -> Any:
        ctx.save_for_backward(values, found, place, positions, absent)
        return found.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        values, found, place, positions, absent = ctx.saved_tensors
        wide = getattr(torch, accumulator(dtype_name(values)))
        equal = (values[positions] == found[place]).to(wide)
        equals = torch.where(found == 0, absent, 0).to(wide).index_add(0, place, equal)
        share = (gradient.to(wide) / equals)[place] * equal
        own = torch.zeros(len(values), dtype=wide).index_copy(0, positions, share)
        return own.to(values.dtype), None, None, None, None
