"""The plan of the rules for a problem, and the plans that are worth trying beside it, by what it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from .cpu import strategies as on_cpu
from .plan import Plan
from .problem import CudaProblem, Problem


def rule_plan(problem: Problem) -> Plan:
    """The plan of the rules alone."""
    plan: Plan = _strategies(problem).rule_plan(problem)
    return plan


def candidates(problem: Problem) -> tuple[Plan, ...]:
    """Plans that a cost model can tell apart, the rules' own first, without repetition."""
    plans: tuple[Plan, ...] = _strategies(problem).candidates(problem)
    return plans


def trials(problem: Problem) -> tuple[Plan, ...]:
    """``candidates``, and plans that only measuring tells from them."""
    return candidates(problem) if isinstance(problem, CudaProblem) else on_cpu.trials(problem)


def searched(problem: Problem) -> tuple[Plan, ...]:
    """``trials``, and plans that a search tries beside them, the rules' own first."""
    return candidates(problem) if isinstance(problem, CudaProblem) else on_cpu.searched(problem)


def searched_rows(problem: Problem, rule: Plan) -> tuple[Plan, ...]:
    """``rule``, which goes over rows of a CPU, and what a search tries beside it of an operator that goes so alone."""
    return tuple(dict.fromkeys((rule, *on_cpu.row_plans(problem))))


def reasons(problem: Problem, plan: Plan) -> Iterator[str]:
    """Sentences on ``plan``, which is that of the rules for the problem. Sizes are said to two digits: a problem that
    was rounded for the rules will do.
    """
    if not isinstance(problem, CudaProblem):
        return plan.reasons(problem)
    sentences: Iterator[str] = _strategies(problem).reasons(problem, plan)
    return sentences


def _strategies(problem: Problem) -> ModuleType:
    """The strategies of what a problem runs on; those of a GPU are imported where there is one."""
    if not isinstance(problem, CudaProblem):
        return on_cpu
    from .cuda import strategies as on_gpu

    return on_gpu
