"""Who takes the time of a call: the clock for a CPU, events on the stream for a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

Timer = Callable[[Callable[[], object], int], float]
"""``timer(run, count)``: seconds of one call of ``run()``, out of ``count`` calls one after the other."""


def timer_of(device: torch.device, clock: Callable[[], float] = time.perf_counter) -> Timer:
    """The timer of a device. clock: in seconds, what a CPU goes by."""
    return on_events(device) if device.type == "cuda" else on_clock(clock)


def on_clock(clock: Callable[[], float]) -> Timer:
    def timed(run: Callable[[], object], count: int) -> float:
        begin = clock()
        for _ in range(count):
            run()
        return (clock() - begin) / count

    return timed


def on_events(device: torch.device) -> Timer:
    """A timer between two events on the current stream of the device, which waits for the second. Caches are as the
    call before has left them, as on a CPU; where launching takes longer than running, that is the time of a call.
    """

    def timed(run: Callable[[], object], count: int) -> float:
        with torch.cuda.device(device):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(count):
                run()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / 1e3 / count

    return timed
