"""The plan of the rules for a problem, and the plans that are worth trying beside it, by what it runs on."""

from __future__ import annotations

from collections.abc import Iterator

from .cpu import strategies as on_cpu
from .cuda import strategies as on_gpu
from .plan import Plan
from .problem import CudaProblem, Problem


def rule_plan(problem: Problem) -> Plan:
    """The plan of the rules alone."""
    return on_gpu.rule_plan(problem) if isinstance(problem, CudaProblem) else on_cpu.rule_plan(problem)


def candidates(problem: Problem) -> tuple[Plan, ...]:
    """Plans that a cost model can tell apart, the rules' own first, without repetition."""
    return on_gpu.candidates(problem) if isinstance(problem, CudaProblem) else on_cpu.candidates(problem)


def trials(problem: Problem) -> tuple[Plan, ...]:
    """``candidates``, and plans that only measuring tells from them."""
    return on_gpu.candidates(problem) if isinstance(problem, CudaProblem) else on_cpu.trials(problem)


def searched(problem: Problem) -> tuple[Plan, ...]:
    """``trials``, and plans that a search tries beside them, the rules' own first."""
    return on_gpu.candidates(problem) if isinstance(problem, CudaProblem) else on_cpu.searched(problem)


def searched_rows(problem: Problem, rule: Plan) -> tuple[Plan, ...]:
    """``rule``, which goes over rows of a CPU, and what a search tries beside it of an operator that goes so alone."""
    return tuple(dict.fromkeys((rule, *on_cpu.row_plans(problem))))


def reasons(problem: Problem, plan: Plan) -> Iterator[str]:
    """Sentences on ``plan``, which is that of the rules for the problem. Sizes are said to two digits: a problem that
    was rounded for the rules will do.
    """
    return on_gpu.reasons(problem, plan) if isinstance(problem, CudaProblem) else plan.reasons(problem)
