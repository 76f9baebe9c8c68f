"""The strategies of a GPU, in the order in which the rules ask them; a plan of blocks has one of the others beside."""

from __future__ import annotations

from collections.abc import Iterator

from ..plan import Plan
from ..problem import CudaProblem
from .blocks import IN_BLOCKS, BlockPlan, may_fill_blocks, on_blocks
from .buckets import BucketPlan
from .chunks import ChunkPlan
from .plan import WARP, CudaPlan
from .rows import FEW, LanePlan, TeamPlan, in_parts

STRATEGIES = ChunkPlan, LanePlan, BucketPlan, TeamPlan
ON_ROWS = LanePlan, TeamPlan
"""Strategies that need nothing but the rows as they stand."""


def rule_plan(problem: CudaProblem) -> CudaPlan:
    """The plan of the rules alone. By blocks says that it is worth looking whether the graph fills them."""
    plan = _by_rules(problem, STRATEGIES)
    return BlockPlan(plan) if may_fill_blocks(problem) else plan


def candidates(problem: CudaProblem) -> tuple[CudaPlan, ...]:
    """Plans to compare, without repetition, the rules' own first, by blocks only if the graph fills them
    (``problem.slots``).
    """
    first = _by_rules(problem, STRATEGIES)
    found: list[CudaPlan] = [BlockPlan(first)] if problem.slots else []
    found += [first, TeamPlan.rule(problem)]
    found += [plan for each in STRATEGIES for plan in each.candidates(problem, first)]
    return tuple(dict.fromkeys(found))


def reasons(problem: CudaProblem, plan: Plan) -> Iterator[str]:
    """Sentences on ``plan``, which is that of the rules for the problem."""
    yield from plan.reasons(problem)
    if problem.kind in IN_BLOCKS and not isinstance(plan, BlockPlan):
        yield on_blocks(problem)


def plan_of_rows(problem: CudaProblem) -> CudaPlan:
    """The plan of an operator by rows as they stand, which takes no sort to make: for a graph that does not stay."""
    return _by_rules(problem, ON_ROWS)


def plan_softmax(problem: CudaProblem) -> CudaPlan:
    """The plan of a softmax over the edges of each row: that of maxima, but that up to ``FEW`` features go over edges
    in lanes too where rows are long enough for their shuffles, ten for a feature, not to matter.
    """
    if problem.features <= FEW and problem.nnz >= 4 * WARP * max(problem.rows, 1):
        return in_parts(LanePlan(problem.arch, WARP), problem.longest)
    return plan_of_rows(problem)


def _by_rules(problem: CudaProblem, strategies: tuple[type[CudaPlan], ...]) -> CudaPlan:
    found: CudaPlan = next(plan for each in strategies if (plan := each.rule(problem)) is not None)
    return found
