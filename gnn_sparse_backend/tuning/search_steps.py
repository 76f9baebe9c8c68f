"""What ``precompile(..., search=True)`` does: has each call run once, and searches every kernel that it decided on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..planner.database import database
from ..planner.decisions import Decision, decisions
from ..runtime.type_names import type_name
from .precompile_steps import Step
from .report import Row
from .search import Found, search


def search_step(
    step: Step,
    deadline: float,
    again: bool,
    seen: set[Any],
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Row]:
    """Rows of the kernels of one step, each with an equal share of what is left until the deadline; where it is over,
    those that the call runs by are told, as predicted.

    seen: keys of decisions that were searched before, of whose plans these are, too; those of this step are added.
    """
    while found := _told(step, seen):
        while found:
            key, decision = next(iter(found.items()))
            now = clock()
            with _without_facts_of_losers(step.structure):
                result = search(decision, database(), now + (deadline - now) / len(found), clock, again=again)
            seen.add(key)
            del found[key]  # and with it the operands
            yield row_of(step, result)


def _told(step: Step, seen: set[Any]) -> dict[Any, Decision]:
    """The decisions of a call that were not seen, by key. A plan that was found may run kernels that were not met
    before.
    """
    with decisions() as told:
        step.run()
    found: dict[Any, Decision] = {}
    for decision in told:
        if decision.key not in seen:
            found.setdefault(decision.key, decision)
    return found


def row_of(step: Step, found: Found) -> Row:
    """The row of a report."""
    decision, record = found.decision, found.record
    measured = {} if record is None else dict(record.seconds)
    return Row(
        step.name,
        f"{step.operator.name}: {decision.what}",
        step.width,
        type_name(step.dtype),
        found.state,
        found.plan,
        measured.get(found.plan),
        measured.get(found.rule),
        len(measured),
        before=measured.get(decision.plan),
        tried=tuple((plan, found.predicted.get(plan), measured.get(plan)) for plan in {**measured, **found.predicted}),
    )


def not_reached(step: Step) -> Row:
    """The row of a step that the budget ended before."""
    return Row(step.name, step.words, step.width, type_name(step.dtype), "not reached")


@contextmanager
def _without_facts_of_losers(structure: Any) -> Iterator[None]:
    """Let go in the end of what the structure has derived meanwhile: what plans that lost derive is not wanted again.

    Its plans and calls are forgotten, and those of graphs that it has made, so that operators ask the database again.
    """
    before = {id(keeper.it): set(keeper.it.facts) for keeper in structure.keepers()}
    try:
        yield
    finally:
        for keeper in list(structure.keepers()):
            for fact in set(keeper.it.facts) - before.get(id(keeper.it), set()):
                keeper.it.facts.pop(fact, None)
            for it in (keeper.it, *keeper.it.facts.values()):  # which may be graphs
                for name in ("plans", "calls"):
                    getattr(it, name, {}).clear()
