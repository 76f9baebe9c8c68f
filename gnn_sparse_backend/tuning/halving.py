"""Finds the fastest of many by few samples of all and more of those that are left.

Successive halving (Jamieson and Talwalkar, Non-stochastic best arm identification and hyperparameter optimization,
2016, Figure 3): each of log2(n) rungs has an equal share of the budget, and half of the arms go on to the next. A loss
there has not yet converged; here a sample is a time, to which a disturbance only adds, so that the least counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Arm = TypeVar("Arm", bound=Hashable)

# A sample repeats a short call until it lasts about this long.
SAMPLE_SECONDS = 2e-4
MOST_CALLS = 1000
# Samples of each arm in the first rung at most; twice as many in each further one.
FIRST_ROUNDS = 3
# An arm whose first two samples are this much slower than the fastest is in no rung.
HOPELESS = 3.0


def halved(
    arms: Sequence[Arm],
    sample: Callable[[Arm, int], float],
    deadline: float,
    clock: Callable[[], float],
    rounds: int = FIRST_ROUNDS,
) -> dict[Arm, float]:
    """The least seconds of a call by arm, in the order given, of all arms that had a sample.

    arms: each ready, so that none of its samples compiles; the first is what the others are held against, and stays in
        all rungs. sample: seconds of one call of an arm, out of a number of calls. deadline: no sample begins after it
        but the first arm's first, by ``clock``. rounds: of samples in the first rung at most.

    In every rung the arms take turns, so that a disturbance falls on all of them.
    """
    if not arms:
        raise ValueError("there is nothing to measure: arms are empty")
    least: dict[Arm, float] = {}
    calls: dict[Arm, int] = {}
    for arm in arms:
        if least and clock() >= deadline:
            break
        least[arm] = sample(arm, 1)
        if clock() < deadline:
            least[arm] = min(least[arm], sample(arm, 1))
        calls[arm] = max(1, min(MOST_CALLS, int(SAMPLE_SECONDS / max(least[arm], 1e-9))))
    first, fastest = arms[0], min(least.values())
    active = [arm for arm in least if arm == first or least[arm] <= HOPELESS * fastest]
    rungs = max(1, math.ceil(math.log2(len(active))))
    for rung in range(rungs):
        now = clock()
        end = now + (deadline - now) / (rungs - rung)
        for turn in range(rounds << rung):
            at = turn % len(active)
            for arm in active[at:] + active[:at]:
                if clock() >= end:
                    break
                least[arm] = min(least[arm], sample(arm, calls[arm]))
            if clock() >= end:
                break
        active.sort(key=least.__getitem__)
        kept = active[: max(2, math.ceil(len(active) / 2))]
        active = kept if first in kept else [*kept, first]
    return least
