"""Searches the plans of a kernel: the cost model says which are promising, and these are measured by halves."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ..compiler.codegen import BuildError
from ..frozen import dataclass
from ..planner.database import PlanDatabase
from ..planner.decisions import Decision
from ..planner.plan import Plan
from ..planner.records import Record
from ..runtime.timers import Timer, on_clock
from .halving import halved

# Plans whose predicted time is at most this multiple of the least are measured.
PROMISING = 3.0
# The share of a kernel's time that compiling plans, and making what they derive of the structure, may take.
READY_SHARE = 0.5
# Measured plans that are measured again beside those that were not reached before.
LEADING = 4
# Logarithms of predicted times that are about the same.
ALIKE = 0.1


@dataclass(frozen=True)
class Found:
    """What a search of one kernel found.

    state: ``measured``; ``measured 3 of 50`` of the promising plans, where the budget ended; ``known`` from before; or
    ``predicted``, where there was no time. plan: that it runs by from now on. record: what the database has of it now,
    None where nothing was measured. rule: the plan of the rules. predicted: seconds of all candidates.
    """

    decision: Decision
    state: str
    plan: Plan
    record: Record | None
    rule: Plan
    predicted: Mapping[Plan, float]


def search(
    decision: Decision,
    known: PlanDatabase,
    deadline: float,
    clock: Callable[[], float] = time.perf_counter,
    timer: Timer | None = None,
    again: bool = False,
) -> Found:
    """Measure the promising plans of a decision until the deadline, and keep in ``known`` what was measured, with what
    was measured before. Where the deadline is over, nothing is measured.

    A plan whose kernels do not compile, or that takes more memory than there is, is left out; the rules' plan raises
    the error. KeyboardInterrupt goes through, and leaves the database as it was.
    """
    predicted = decision.candidates()
    rule = next(iter(predicted))
    before = None if again else known.find(decision.problem, decision.fingerprint)
    measured = {} if before is None else dict(before.seconds)
    wanted = promising(predicted)
    left = [plan for plan in wanted if plan not in measured]
    if before is not None and not left:
        return Found(decision, "known", before.best, before, rule, predicted)
    if clock() >= deadline:
        state = "predicted" if before is None else _progress(wanted, measured)
        return Found(decision, state, decision.plan if before is None else before.best, before, rule, predicted)
    plans = list(dict.fromkeys((rule, decision.plan, *list(measured)[:LEADING], *left)))
    timed, now = on_clock(clock) if timer is None else timer, clock()
    with torch.no_grad():
        ready = _made_ready(decision, plans, now + READY_SHARE * (deadline - now), clock)
        found = halved(ready, lambda plan, count: timed(lambda: decision.run(plan), count), deadline, clock)
    seconds = of_now(measured, found)
    record = known.add(decision.problem, decision.fingerprint(), seconds)
    return Found(decision, _progress(wanted, seconds), record.best, record, rule, predicted)


def promising(predicted: Mapping[Plan, float]) -> list[Plan]:
    """The plans worth measuring, the rules' own first and then those of the least predicted seconds; those of about the
    same in the order given.
    """
    rule, least = next(iter(predicted)), min(predicted.values())
    near = [plan for plan in predicted if predicted[plan] <= PROMISING * least]
    near.sort(key=lambda plan: round(math.log(predicted[plan] / least) / ALIKE) if least else 0)
    return list(dict.fromkeys((rule, *near)))


def of_now(measured: Mapping[Plan, float], found: Mapping[Plan, float]) -> dict[Plan, float]:
    """What was measured before and what was found now as one: the former as it would be now, by the median of how much
    longer plans took that were measured both times.
    """
    changes = [found[plan] / measured[plan] for plan in measured if plan in found]
    change = statistics.median(changes) if changes else 1.0
    return {**{plan: taken * change for plan, taken in measured.items()}, **found}


def _progress(wanted: list[Plan], measured: Mapping[Plan, Any]) -> str:
    reached = sum(plan in measured for plan in wanted)
    return "measured" if reached == len(wanted) else f"measured {reached} of {len(wanted)}"


def _made_ready(decision: Decision, plans: list[Plan], deadline: float, clock: Callable[[], float]) -> list[Plan]:
    """The plans that ran once before the deadline, several at a time, in their order; the first one always."""
    decision.run(plans[0])

    def ran(plan: Plan) -> bool:
        if clock() >= deadline:
            return False
        try:
            with torch.no_grad():
                decision.run(plan)
        except (BuildError, MemoryError, torch.OutOfMemoryError):
            return False
        return True

    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads, "gsb-search", torch.set_num_threads, (threads,)) as pool:
        try:
            done = list(pool.map(ran, plans[1:]))
        except BaseException:
            deadline = float("-inf")  # of those that wait for their turn
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [plans[0], *(plan for plan, ready in zip(plans[1:], done) if ready)]
