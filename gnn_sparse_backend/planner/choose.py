"""The plan of a problem: what was measured for this structure, else what the cost model expects, else the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..frozen import dataclass
from .candidates import candidates, reasons, rule_plan, trials
from .cost import Cost, predict, predicted_seconds
from .database import PlanDatabase, database
from .plan import Plan, interned
from .problem import CudaProblem, Problem
from .records import Record

# The model has to expect so much less than the rules' plan takes.
MARGIN = 0.95


@dataclass(frozen=True)
class Choice:
    """A plan and where it comes from.

    source: ``"measured"``, ``"model"`` or ``"rules"``. reasons: sentences. predicted: candidates, and what was measured
    beside them, with their predicted cost, the rules' plan first. measured: measured plans and their seconds, fastest
    first; empty where none was.
    """

    plan: Plan
    source: str
    reasons: tuple[str, ...]
    predicted: tuple[tuple[Plan, Cost], ...]
    measured: tuple[tuple[Plan, float], ...] = ()


def plan_for(problem: Problem, fingerprint: Callable[[], str], known: PlanDatabase | None = None) -> Plan:
    """The plan of ``choose``, in microseconds where a problem about as large was seen before; equal plans are one
    object.
    """
    known = database() if known is None else known
    record = known.find(problem, fingerprint)
    if record is not None:
        return interned(record.best)
    return interned(rule_plan(problem)) if type(problem) is CudaProblem else _chosen(problem.rounded_sizes(), known)


def choose(problem: Problem, fingerprint: Callable[[], str], known: PlanDatabase | None = None) -> Choice:
    """The plan with its reasons. ``fingerprint()``: of the structure (32 hex digits); called only where it may be
    known.

    Nothing is measured. The model compares sizes rounded to four significant bits, so that its plan is the same for
    problems about as large. On a GPU the model chooses nothing: rules do, where nothing was measured.

    known: the database of the machine that the problem is for; of this CPU by default.
    """
    known = database() if known is None else known
    record = known.find(problem, fingerprint)
    if not isinstance(problem, CudaProblem):
        problem = problem.rounded()
    compared = _compared(problem, record)
    predicted = tuple((plan, predict(problem, plan, known.units)) for plan in compared if plan.counted)
    if record is not None:
        why = _reasons_measured(record, predicted)
        if isinstance(problem, CudaProblem):
            from .cuda.blocks import BlockPlan, on_blocks

            why = (*why, on_blocks(problem)) if isinstance(record.best, BlockPlan) else why
        return Choice(record.best, "measured", why, predicted, record.seconds)
    if isinstance(problem, CudaProblem):
        plan = predicted[0][0]
        return Choice(plan, "rules", (*reasons(problem, plan), _constants_on_gpu(known)), predicted)
    plan = _from_model(problem, known.units)
    first, others = predicted[0], predicted[1:]
    if plan == first[0]:
        why = (
            *reasons(problem, plan),
            (
                f"The cost model expects {_duration(first[1].seconds)} of this, the plan of the rules, and "
                f"{_duration(min(cost.seconds for _, cost in others))} of the best other; to be preferred, that "
                f"would have to promise {1 - MARGIN:.0%} less."
                if others
                else f"This is the plan of the rules, {_untold(problem)}."
            ),
        )
    else:
        cost = predict(problem, plan, known.units)
        why = (
            f"The cost model expects {_duration(cost.seconds)}, and {_duration(first[1].seconds)} of the rules' plan "
            f"({first[0]}): {_difference(first[1], cost)}.",
        )
    source = "rules" if plan == first[0] else "model"
    constants = "measured on this machine" if known.calibrated else "defaults (`gsb tune` measures this machine's)"
    return Choice(plan, source, (*why, f"The constants of the cost model are {constants}."), predicted)


def _compared(problem: Problem, record: Record | None) -> Sequence[Plan]:
    """The candidates, and on a CPU what was measured beside them."""
    measured = () if record is None or isinstance(problem, CudaProblem) else (plan for plan, _ in record.seconds)
    return tuple(dict.fromkeys((*candidates(problem), *measured)))


def _constants_on_gpu(known: PlanDatabase) -> str:
    how = (
        "are measured on this GPU"
        if known.calibrated
        else "follow from the properties of the device; `gsb tune` measures them"
    )
    return (
        f"The predictions below are those of a simple model, which chooses nothing. The bandwidths that it takes {how}."
    )


def _chosen(rounded: tuple[Any, ...], known: PlanDatabase) -> Plan:
    """The model's plan for a problem of these fields, worked out once for the constants of a database."""
    chosen = known.chosen
    plan = chosen.get(rounded)
    if plan is None:
        plan = chosen.keep(rounded, interned(_from_model(Problem(*rounded), known.units)))
    return plan


def _from_model(problem: Problem, units: Mapping[str, float]) -> Plan:
    plans = candidates(problem)
    if len({plan.order for plan in plans}) > 1:
        # it must be the same for any number of threads: it is chosen as for one
        order = _best(problem.on(1), candidates(problem.on(1)), units).order
        plans = tuple(plan for plan in plans if plan.order == order)
    return _best(problem, plans, units)


def _best(problem: Problem, plans: Sequence[Plan], units: Mapping[str, float]) -> Plan:
    """The plan of the least predicted cost; the first, which is closest to the rules', unless another is clearly
    better.
    """
    if len(plans) == 1:
        return plans[0]
    costs = [predicted_seconds(problem, plan, units) for plan in plans]
    least = min(costs)
    return plans[costs.index(least)] if least < MARGIN * costs[0] else plans[0]


def _reasons_measured(record: Record, predicted: Sequence[tuple[Plan, Cost]]) -> tuple[str, ...]:
    fastest, seconds = record.seconds[0]
    first = predicted[0][0]
    times = dict(record.seconds)
    reasons = [
        f"It was the fastest of {len(times)} plans measured on this structure on {record.created[:10]}: "
        f"{_duration(seconds)}."
    ]
    if first in times and first != fastest:
        reasons.append(f"The rules' plan ({first}) took {_duration(times[first])}.")
    return tuple(reasons)


def _untold(problem: Problem) -> str:
    """How many plans only measuring tells from the only one that the cost model knows, in words."""
    others = len(trials(problem)) - 1
    if not others:
        return "and there is no other"
    which = "another" if others == 1 else f"{others} others"
    return f"and the cost model cannot tell it from {which} that gsb.precompile or `gsb tune` would measure"


def _difference(before: Cost, after: Cost) -> str:
    """The terms in which two costs differ most."""
    changes = {
        name: after.terms.get(name, 0.0) - before.terms.get(name, 0.0) for name in {**before.terms, **after.terms}
    }
    largest = sorted(changes.items(), key=lambda change: -abs(change[1]))[:3]
    return ", ".join(
        f"{name} {'+' if change > 0 else '-'}{_duration(abs(change))}" for name, change in largest if change
    )


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
