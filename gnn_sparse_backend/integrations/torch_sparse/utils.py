"""Indices in order, and pointers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later

if TYPE_CHECKING:
    from ...structures import build
    from ...structures.coordinates import packing
else:
    build, packing = later(__name__, "...structures.build"), later(__name__, "...structures.coordinates.packing")

SMALL = 1 << 14
"""Numbers up to which PyTorch's sort takes no longer than one by digits."""


def index_sort(inputs: Tensor, max_value: int | None = None) -> tuple[Tensor, Tensor]:
    """(the numbers (n,) in ascending order, where each was), of int64 that are not negative; equal ones keep their
    order. max_value: at most which they are.
    """
    if not inputs.is_cpu or inputs.numel() < SMALL or inputs.dtype != torch.int64 or type(inputs) is not Tensor:
        return inputs.sort(stable=True)
    most = int(inputs.max()) if max_value is None else max_value
    if int(inputs.min()) < 0:
        return inputs.sort(stable=True)
    ascending, order, _ = packing.in_order(inputs, max(most.bit_length(), 1))
    return ascending[:-1], order


def ind2ptr(index: Tensor, size: int) -> Tensor:
    """(size + 1,) pointers of an index that ascends."""
    return build.compress(index, size).to(torch.int64)


def ptr2ind(pointers: Tensor, count: int) -> Tensor:
    """(count,) the row of each number that is between pointers."""
    rows = torch.arange(pointers.shape[0] - 1, device=pointers.device)
    return rows.repeat_interleave(pointers.diff(), output_size=count)


def is_scalar(other: object) -> bool:
    return isinstance(other, (int, float))
