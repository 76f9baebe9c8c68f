"""The memory probe against allocations of known size."""

import functools
import os
import sys

import numpy as np
import pytest
import torch

from benchmarks.support import memory
from gnn_sparse_backend.runtime import memory as pool

MiB = 1 << 20
SIZE = 64 * MiB
# page tables, interpreter objects, and the counters' own grain
SLACK = 2 * MiB

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured on Linux alone")


def large_then_small():
    first = np.ones(SIZE // 2, np.uint8)
    second = np.ones(SIZE // 2, np.uint8)
    del first, second
    np.ones(SIZE // 4, np.uint8)


def keeps_at_first(kept=[]):  # noqa: B006 -- what a first call keeps
    if not kept:
        kept.append(np.ones(SIZE, np.uint8))
    np.ones(SIZE // 4, np.uint8)


def makes_results(pieces: int):
    for tensor in [pool.empty(torch.empty(0), SIZE // 4 // pieces) for _ in range(pieces)]:
        tensor.fill_(1)


def results_after_a_first_call(pieces: int) -> tuple[int, dict[str, int]]:
    """(bytes that the pool kept of a call, what the probe finds then)."""
    makes_results(pieces)
    return pool.POOL.kept, memory.of_call(functools.partial(makes_results, pieces))


# In a fresh process, as the benchmarks measure: in one with a history the system may turn pages into huge ones
# meanwhile.


@pytest.mark.slow
def test_the_peak_of_a_call_is_what_it_touched():
    found = memory.in_child(memory.of_call, large_then_small)
    assert SIZE - SLACK <= found["step"] <= SIZE + SLACK
    assert abs(found["held"]) <= SLACK


@pytest.mark.slow
def test_what_the_first_call_keeps_is_held_and_not_part_of_the_step():
    found = memory.in_child(memory.of_call, keeps_at_first)
    assert SIZE - SLACK <= found["held"] <= SIZE + SLACK
    assert SIZE // 4 - SLACK <= found["step"] <= SIZE // 4 + SLACK


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 64])
def test_what_an_allocator_keeps_counts_all_the_same(pieces):
    """Small tensors come from malloc's heap, which keeps them; one of ours comes from a pool, which keeps it."""
    kept, found = memory.in_child(results_after_a_first_call, pieces)
    if pieces == 1 and pool.POOL.limit >= SIZE:
        assert kept >= SIZE
    assert SIZE - SLACK <= found["step"] <= SIZE + 2 * SLACK


def test_a_child_is_another_process_and_its_death_is_said():
    assert memory.in_child(os.getpid) != os.getpid()
    with pytest.raises(memory.CannotMeasure, match="killed"):
        memory.in_child(os.abort)


def test_errors_of_the_child_are_its_own():
    with pytest.raises(ValueError, match="nonsense"):
        memory.in_child(int, "nonsense")


def test_a_system_without_the_counters_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "Path", lambda path: tmp_path / "absent" / "file")
    with pytest.raises(memory.CannotMeasure, match="VmRSS"):
        memory.resident()
    with pytest.raises(memory.CannotMeasure, match="cannot be reset"):
        memory.reset_peak()
