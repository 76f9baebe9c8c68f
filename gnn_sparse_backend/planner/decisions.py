"""Where operators decide by which plan they run, told to whoever listens: a search tries the same work by others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from ..frozen import dataclass
from .database import database
from .plan import Plan, interned
from .problem import Problem

P = TypeVar("P", bound=Plan)


@dataclass(frozen=True, eq=False)
class Decision:
    """A kernel, or several that have one plan together, that ran on a structure of the CPU.

    what: they compute, in words. plan: that it ran by. problem, fingerprint: what measurements are found by.
    candidates: plans that may run, with predicted seconds, that of the rules first. run: makes the call again by one of
    them, on the operands that it had; its result is the candidate's own.
    """

    what: str
    plan: Plan
    problem: Problem
    fingerprint: Callable[[], str]
    candidates: Callable[[], Mapping[Plan, float]]
    run: Callable[[Any], object]

    @property
    def key(self) -> tuple[Any, ...]:
        """What decisions of one plan have in common."""
        return self.fingerprint(), self.problem


class _Listeners(threading.local):
    def __init__(self) -> None:
        self.told: list[Decision] | None = None


listeners = _Listeners()
"""The list of each thread that decisions are added to; None where nobody listens."""


@contextmanager
def decisions() -> Iterator[list[Decision]]:
    """Collect the decisions of calls inside the block, in this thread. They hold the operands of these calls."""
    before, listeners.told = listeners.told, []
    try:
        yield listeners.told
    finally:
        listeners.told = before


def measured_plan(problem: Problem, fingerprint: Callable[[], str], rule: P) -> P:
    """The fastest plan that was measured, of the strategy of the rules, for a problem on the structure of this
    fingerprint, else that of the rules.
    """
    record = database().find(problem, fingerprint)
    measured = () if record is None else record.seconds
    # strategies differ in who can run them
    best = next((plan for plan, _ in measured if type(plan) is type(rule)), rule)
    return interned(best)  # type: ignore[return-value]
