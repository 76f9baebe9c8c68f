"""Measures the bandwidths that the cost model for a GPU takes, by copies."""

from __future__ import annotations

import torch

from ..ops.core.plans import database_of
from ..ops.core.plans_cuda import gpu_of
from ..planner.cuda.cost import default_units
from ..runtime.timers import Timer, timer_of

# Sizes of copies, in second-level caches: one that goes to memory, and one that does not.
_BEYOND, _WITHIN = 8, 1 / 8
_CALLS, _ROUNDS = 10, 5


def calibrate_gpu(device: torch.device, timer: Timer | None = None) -> dict[str, float]:
    """Measure, keep in the database, and return the units of `planner.cuda.cost`, in seconds: bytes from memory and
    from the second-level cache by copies. What a launch and a wait cost remain as guessed. Some milliseconds, which
    wait for the GPU.
    """
    gpu = gpu_of(device)
    timer = timer_of(device) if timer is None else timer
    beyond = _seconds_of_a_byte(int(_BEYOND * gpu.cache), device, timer)
    within = min(beyond, _seconds_of_a_byte(int(_WITHIN * gpu.cache), device, timer))
    units = {**default_units(gpu), "stream": beyond, "far": beyond, "near": within}
    database_of(device).set_units(units)
    return units


def _seconds_of_a_byte(size: int, device: torch.device, timer: Timer) -> float:
    """Seconds that a byte of a copy of ``size`` bytes takes, read or written; the least counts, as noise only adds."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    copy()
    return min(timer(copy, _CALLS) for _ in range(_ROUNDS)) / (2 * size)
