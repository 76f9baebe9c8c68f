"""Interleaved timing of contenders that must be switched on and off: they take turns of several calls.

Switching a backend on or off forgets what it derived from the graphs. A user who switches it on once does not pay that
again, so every turn opens with a call that is timed apart.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from benchmarks.support.timing import Timing, collector_off, rotated


@dataclass(frozen=True)
class Switched:
    """A callable that runs inside ``context()``, which is entered once per turn."""

    call: Callable[[], object]
    context: Callable[[], AbstractContextManager] = nullcontext

    def first(self, clock: Callable[[], float] = time.perf_counter) -> tuple[object, float]:
        """The result of one call and the seconds that it took, without the switching."""
        with self.context():
            begin = clock()
            result = self.call()
            return result, clock() - begin


@dataclass(frozen=True)
class Turns:
    """What one contender's turns took: ``timing`` of its warm calls, ``opening``: median seconds of its turns' first
    calls.
    """

    timing: Timing
    opening: float


def in_turns(
    contenders: Mapping[str, Switched],
    *,
    budget_s: float,
    turn_s: float = 0.1,
    calls: int = 3,
    min_turns: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Turns]:
    """Time every contender of ``{name: Switched}`` in turns; return ``{name: Turns}`` in the same order.

    A turn is one opening call, then at least ``calls`` timed calls that last at least ``turn_s`` seconds together.
    All contenders have a turn in each round, in rotating order; rounds go on while ``budget_s`` lasts, at least
    ``min_turns``. Garbage is collected before each turn, and not during it.
    """
    if calls < 1 or min_turns < 1:
        raise ValueError(f"need at least one call and one turn, got {calls} and {min_turns}")
    names = list(contenders)
    samples: dict[str, list[float]] = {name: [] for name in names}
    openings: dict[str, list[float]] = {name: [] for name in names}
    start, turn = clock(), 0
    with collector_off():
        while names and (turn < min_turns or clock() - start < budget_s):
            for name in rotated(names, turn):
                contender = contenders[name]
                # only what the turns have made: a whole collection takes longer than many a turn
                gc.collect(1)
                with contender.context():
                    openings[name].append(_seconds(contender.call, clock))
                    turn_start, taken = clock(), 0
                    while taken < calls or clock() - turn_start < turn_s:
                        samples[name].append(_seconds(contender.call, clock))
                        taken += 1
            turn += 1
    return {name: Turns(Timing.of(samples[name]), statistics.median(openings[name])) for name in names}


def _seconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    begin = clock()
    call()
    return clock() - begin
