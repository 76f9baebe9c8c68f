"""The plan of a problem: what was measured for this structure, else what the cost model expects, else the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import reasons
from .candidates import candidates, rule_plan
from .cost import Cost, predict, predicted_seconds
from .cuda import cost as cuda_cost
from .cuda import reasons as cuda_reasons
from .cuda.plan import CudaPlan
from .database import PlanDatabase, database
from .plan import Plan, interned
from .problem import CudaProblem, Problem
from .records import Record

# The model has to expect so much less than the rules' plan takes.
MARGIN = 0.95
# The order of additions must be the same for any number of threads: it is chosen as for one. (The reduction, which
# decides it too, is that of the rules, which do not look at threads for it.)
_DECIDES_ORDER = ("partitions", "longest_part")


@dataclass(frozen=True)
class Choice:
    """A plan and where it comes from.

    source: ``"measured"``, ``"model"`` or ``"rules"``. reasons: sentences. predicted: candidates and their predicted
    cost, the rules' plan first. measured: measured plans and their seconds, fastest first; empty where none was.
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
    if type(problem) is CudaProblem:
        return _choose_on_gpu(problem, fingerprint, known)
    units = known.units
    rounded = problem.rounded()
    predicted = tuple((plan, predict(rounded, plan, units)) for plan in candidates(rounded))
    record = known.find(problem, fingerprint)
    if record is not None:
        return Choice(record.best, "measured", _reasons_measured(record, predicted), predicted, record.seconds)
    plan = _from_model(rounded, units)
    first, others = predicted[0], predicted[1:]
    if plan == first[0]:
        why = [
            *reasons.reasons(rounded, plan),
            (
                f"The cost model expects {_duration(first[1].seconds)} of this, the plan of the rules, and "
                f"{_duration(min(cost.seconds for _, cost in others))} of the best other; to be preferred, that "
                f"would have to promise {1 - MARGIN:.0%} less."
                if others
                else "This is the plan of the rules, and no other is worth a comparison."
            ),
        ]
    else:
        cost = predict(rounded, plan, units)
        why = [
            f"The cost model expects {_duration(cost.seconds)}, and {_duration(first[1].seconds)} of the rules' plan "
            f"({describe(first[0])}): {_difference(first[1], cost)}."
        ]
    source = "rules" if plan == first[0] else "model"
    constants = "measured on this machine" if known.calibrated else "defaults (`gsb tune` measures this machine's)"
    return Choice(plan, source, (*why, f"The constants of the cost model are {constants}."), predicted)


def _choose_on_gpu(problem: CudaProblem, fingerprint: Callable[[], str], known: PlanDatabase) -> Choice:
    plans = [plan for plan in candidates(problem) if isinstance(plan, CudaPlan)]
    predicted = tuple((plan, cuda_cost.predict(problem, plan, known.units)) for plan in plans)
    record = known.find(problem, fingerprint)
    if record is not None:
        why = _reasons_measured(record, predicted)
        if isinstance(record.best, CudaPlan) and record.best.blocks:
            why = *why, cuda_reasons.on_blocks(problem)
        return Choice(record.best, "measured", why, predicted, record.seconds)
    plan = plans[0]
    how = (
        "are measured on this GPU"
        if known.calibrated
        else "follow from the properties of the device; `gsb tune` measures them"
    )
    constants = (
        f"The predictions below are those of a simple model, which chooses nothing. The bandwidths that it takes {how}."
    )
    return Choice(plan, "rules", (*cuda_reasons.reasons(problem, plan), constants), predicted)


def describe(plan: Plan) -> str:
    """A plan in a few words."""
    if type(plan) is CudaPlan:
        return cuda_reasons.words(plan)
    words = ["1 thread" if plan.groups == 1 else f"{plan.groups} groups"]
    if plan.balance == "rows" and plan.groups > 1:
        words[0] += " of equal rows"
    if plan.prefetch:
        words.append(f"{plan.prefetch} ahead")
    if plan.reduction == "simd":
        words.append("in lanes")
    elif plan.reduction == "scattered":
        words.append("scattered")
    if plan.partitions > 1:
        words.append(f"{plan.partitions} partitions")
    if plan.longest_part:
        words.append(f"rows in parts of {plan.longest_part}")
    if plan.sliced:
        words.append(f"slices of {plan.sliced}")
    return ", ".join(words)


def _chosen(rounded: tuple[Any, ...], known: PlanDatabase) -> Plan:
    """The model's plan for a problem of these fields, worked out once for the constants of a database."""
    chosen = known.chosen
    plan = chosen.get(rounded)
    if plan is None:
        plan = chosen.keep(rounded, interned(_from_model(Problem(*rounded), known.units)))
    return plan


def _from_model(problem: Problem, units: Mapping[str, float]) -> Plan:
    plans = candidates(problem)
    if len(plans) == 1:
        return plans[0]
    if len(set(map(_order, plans))) > 1:
        order = _order(_best(problem.on(1), candidates(problem.on(1)), units))
        rules = replace(plans[0], **dict(zip(_DECIDES_ORDER, order)))
        plans = (rules, *(plan for plan in plans if _order(plan) == order))
    return _best(problem, plans, units)


def _best(problem: Problem, plans: Sequence[Plan], units: Mapping[str, float]) -> Plan:
    """The plan of the least predicted cost; the first, which is closest to the rules', unless another is clearly
    better.
    """
    costs = [predicted_seconds(problem, plan, units) for plan in plans]
    least = min(costs)
    return plans[costs.index(least)] if least < MARGIN * costs[0] else plans[0]


def _order(plan: Plan) -> tuple[Any, ...]:
    return plan.partitions, plan.longest_part


def _reasons_measured(record: Record, predicted: Sequence[tuple[Plan, Cost]]) -> tuple[str, ...]:
    fastest, seconds = record.seconds[0]
    first = predicted[0][0]
    times = dict(record.seconds)
    reasons = [
        f"It was the fastest of {len(times)} plans measured on this structure on {record.created[:10]}: "
        f"{_duration(seconds)}."
    ]
    if first in times and first != fastest:
        reasons.append(f"The rules' plan ({describe(first)}) took {_duration(times[first])}.")
    return tuple(reasons)


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
