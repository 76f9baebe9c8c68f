"""How fast this machine is now, by which bounds on seconds are widened where it is slow."""

from __future__ import annotations

import time

import numpy as np

QUIET = 0.034
"""Seconds that `_work` takes on a quiet core of 2.5 GHz."""


def pace() -> float:
    """How many times longer work takes here and now than on a quiet core of 2.5 GHz; 1 on a faster one.

    A bound on processor time is written for such a core and multiplied by this, measured right after what it bounds:
    machines that run tests are several times slower, and caches and cores are shared with other tests.
    """
    taken = []
    for _ in range(5):
        begin = time.thread_time()
        _work()
        taken.append(time.thread_time() - begin)
    return max(1.0, float(np.median(taken)) / QUIET)


def _work() -> None:
    """Interpreted code and passes over some megabytes, as everything here is made of."""
    counts: dict[int, int] = {}
    for number in range(50_000):
        counts[number & 1023] = counts.get(number & 1023, 0) + number
    numbers = np.arange(1 << 20, dtype=np.int64)
    for _ in range(3):
        numbers = numbers[::-1] + 1
