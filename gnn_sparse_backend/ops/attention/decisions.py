"""What is measured of the passes of attention, and what they tell of the plans that they may run by."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...planner.candidates import searched_rows
from ...planner.cost import predicted_seconds
from ...planner.cpu.rows import RowPlan
from ...planner.database import database
from ...planner.decisions import Decision, listeners
from ...planner.plan import Plan
from ...planner.problem import Problem
from ...runtime.threads import planned_threads
from ..core.executable import Executable, build
from ..core.plans import structure_fingerprint
from .executables import Spec
from .programs.attention import AttentionSpec
from .programs.attention_gradient import GradientSpec
from .programs.sums import SumsSpec


def problem_of_pass(spec: Spec, graph, threads: int) -> Problem:
    """What the planner is told of a pass over the edges of each row."""
    features, dtype = _width(spec)
    return Problem(_kind(spec), *graph.shape, graph.num_edges, features, dtype, threads)


def tell(spec: Spec, plan: Plan, rule: Plan, graph, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Tell whoever listens of a pass that ran."""
    if listeners.told is None or not isinstance(plan, RowPlan):
        return
    problem, made = problem_of_pass(spec, graph, planned_threads()), dict[Plan, Executable]()

    def run(other: Plan) -> list[Tensor]:
        if other not in made:
            made[other] = build(spec, other)
        found = [torch.empty_like(x) for x in results]
        made[other](graph, operands, found)
        return found

    def candidates() -> Mapping[Plan, float]:
        units = database().units
        return {each: predicted_seconds(problem, each, units) for each in searched_rows(problem, rule)}

    what = _WORDS[type(spec)]
    listeners.told.append(Decision(what, plan, problem, lambda: structure_fingerprint(graph), candidates, run))


_WORDS = {AttentionSpec: "attention", GradientSpec: "gradients of attention", SumsSpec: "sums of attention's gradients"}


@kept
def _kind(spec: Spec) -> str:
    """Where operands stand, and a digest of all that is static."""
    digest = hashlib.blake2b(repr(spec).encode(), digest_size=8).hexdigest()
    return f"{_WORDS[type(spec)]} {digest}:{','.join(operand.at for operand in spec.operands)}"


@kept
def _width(spec: Spec) -> tuple[int, str]:
    """(features of a row of the result, type)."""
    if isinstance(spec, SumsSpec):
        return sum(output.features for output in spec.outputs), spec.outputs[0].dtype
    attention = spec if isinstance(spec, AttentionSpec) else spec.attention
    return attention.features, attention.dtype
