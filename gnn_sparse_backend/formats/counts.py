"""Sums by number, and of all that stand before; runs of equal entries, and how many there are.

Unlike by `torch.bincount`, `torch.unique` and `torch.nonzero`, nobody waits for a device, which has to say how large
their results are: what is asked of it goes through `read`, all at once.
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


def extent_of(numbers: Tensor) -> int:
    """One more than the largest number, 0 of none. A GPU is waited for."""
    return int(numbers.max()) + 1 if numbers.numel() else 0


def read(*values: Tensor) -> list[int]:
    """The values of 0-d tensors of integers or truth values. A GPU is waited for, once for all of them."""
    if values[0].is_cpu:
        return [int(value) for value in values]
    return torch.stack([value.long() for value in values]).tolist()


def begins_of(keys: Tensor) -> Tensor:
    """(n,) whether each of n keys is unlike the one before."""
    begins = torch.ones(keys.numel(), dtype=torch.bool, device=keys.device)
    torch.ne(keys[1:], keys[:-1], out=begins[1:])
    return begins


def numbered_runs(keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(the run of equal neighbours of each key, its place there, the number of runs); int64, the last one 0-d."""
    begins = begins_of(keys)
    position = torch.arange(keys.numel(), device=keys.device)
    first = torch.where(begins, position, 0).cummax(0).values
    return begins.cumsum(0) - 1, position - first, begins.sum()


def at_places(places: Tensor, values: Tensor | None = None) -> Tensor:
    """(n,) the n values where ``places``, a permutation, puts each; of their numbers, its inverse."""
    if values is None:
        values = torch.arange(places.numel(), dtype=places.dtype, device=places.device)
    return torch.empty_like(values).index_copy_(0, places, values)


def numbers_of(chosen: Tensor, count: int) -> Tensor:
    """(count,) the positions of the true entries, of which there are ``count``; int64, ascending."""
    # the k-th is where there are k + 1 of them
    return torch.searchsorted(chosen.cumsum(0), torch.arange(1, count + 1, device=chosen.device))


def starts_of(numbers: Tensor, count: int) -> Tensor:
    """(count + 1,) where each of ``count`` runs (`numbered_runs`) begins, and where the last one ends."""
    return torch.searchsorted(numbers, torch.arange(count + 1, device=numbers.device))


def distinct(keys: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
    """(distinct keys, ascending; which of them each key is). count: of these, where it is known; else it is read."""
    ordered, order = torch.sort(keys)
    numbers, _, found = numbered_runs(ordered)
    if count is None:
        (count,) = read(found)
    return ordered.index_select(0, starts_of(numbers, count)[:-1]), at_places(order, numbers)
