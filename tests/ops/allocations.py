"""What a call allocates: every tensor's memory, in whichever operator, traced code or backward pass it is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile

from gnn_sparse_backend.runtime import memory


class Allocations:
    """Bytes of each allocation since recording began, in no order; complete when it has ended."""

    def __init__(self):
        self.sizes: list[int] = []

    @property
    def largest(self) -> int:
        return max(self.sizes)


@contextmanager
def recorded():
    """Record what PyTorch's CPU allocator and our pool of large results are asked for."""
    found, lease = Allocations(), memory.POOL.lease

    def leased(nbytes: int):
        found.sizes.append(nbytes)
        return lease(nbytes)

    with (
        mock.patch.object(memory.POOL, "lease", leased),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled,
    ):
        yield found
    events = profiled.profiler.kineto_results.events()
    found.sizes += [event.nbytes() for event in events if event.name() == "[memory]" and event.nbytes() > 0]


def largest_of_step(function: Callable, inputs: list) -> int:
    """Bytes of the largest allocation in ``function(*inputs)`` and its backward pass."""
    with recorded() as found:
        out = function(*inputs)
        torch.autograd.grad(out, inputs, torch.ones_like(out))
    return found.largest
