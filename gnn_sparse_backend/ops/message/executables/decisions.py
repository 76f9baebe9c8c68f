"""What aggregations and edge maps tell of the plans that they may run by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ....planner.candidates import searched
from ....planner.cost import predicted_seconds
from ....planner.decisions import Decision
from ....planner.plan import Plan
from ....planner.problem import Problem
from ....runtime import devices
from ...core.executable import executables_of
from ...core.plans import database_of, problem_of, structure_fingerprint
from ..programs.aggregate import AggregateSpec
from .aggregation import final_plan


def tell(
    told: list[Decision], call: Any, plan: Plan, graph, operands: Sequence[Tensor | None], results: Sequence[Tensor]
) -> None:
    """Add a call (`calls.Call`) that ran to those that are told of; not one on a GPU, of integers, or one that
    depends on the order of the non-zeros, whose plan is another's.
    """
    dtype = results[0].dtype
    if devices.arch_of(graph.device) or call.in_order or not dtype.is_floating_point:
        return
    problem = problem_of(graph, call.of.kind, call.work, operands[0].dtype if operands[0] is not None else dtype)

    def run(plan: Plan) -> list[Tensor]:
        found = [torch.empty_like(x) for x in results]
        call.executable(plan)(graph, operands, [x.view(x.shape[0], -1) for x in found])
        return found

    def candidates() -> Mapping[Plan, float]:
        return _candidates(call, problem, graph)

    told.append(Decision(call.of.kind, plan, problem, lambda: structure_fingerprint(graph), candidates, run))


def _candidates(call: Any, problem: Problem, graph) -> dict[Plan, float]:
    units, spec = database_of(graph.device).units, call.spec
    plans = (plan for plan in searched(problem) if final_plan(plan, spec) == plan)
    found = {plan: predicted_seconds(problem, plan, units) for plan in plans}
    if type(spec) is AggregateSpec:
        for executable in executables_of(spec):
            found |= executable.offered(spec, graph, problem)
    return found
