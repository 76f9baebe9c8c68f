"""Sums by number, and of all that stand before.

Unlike by `torch.bincount`, nobody waits for a device, which has to say the least and the largest number there.
"""

from __future__ import annotations

import torch
from torch import Tensor


def added_at(numbers: Tensor, values: Tensor, bound: int) -> Tensor:
    """(bound,) the sum of the int64 values at each number."""
    return torch.zeros(bound, dtype=torch.int64, device=numbers.device).index_add_(0, numbers, values)


def counts_of(numbers: Tensor, bound: int) -> Tensor:
    """(bound,) how often each int64 number occurs."""
    return added_at(numbers, torch.ones_like(numbers), bound)


def prefix_sums(counts: Tensor) -> Tensor:
    """(n + 1,) the sum of the counts before each of the n, and of all; of integers in int64."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


__all__ = ["added_at", "counts_of", "prefix_sums"]
