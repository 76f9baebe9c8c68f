"""The strategies of a CPU, in the order in which the rules ask them, and what is worth trying beside their choice."""

from __future__ import annotations

from dataclasses import replace

from .. import machine
from ..problem import Problem
from .passes import PartitionPlan, PartPlan
from .prefetch_distance import distance
from .rows import CpuPlan, RowPlan, ScatteredPlan, may_go_in_lanes
from .slices import SlicePlan, slice_width
from .spmm import BYTES_AHEAD, GROUPS_PER_THREAD, serial_work, work_of

STRATEGIES = PartPlan, SlicePlan, PartitionPlan, ScatteredPlan, RowPlan
# A parallel loop may pay from a quarter of the rules' limit on, and one thread up to four times it.
_EITHER_WAY = 4


def rule_plan(problem: Problem) -> CpuPlan:
    """The plan of the rules alone. An edge map reduces over no edges: groups and prefetch are all it has to plan."""
    strategies = (RowPlan,) if problem.reduce == "map" else STRATEGIES
    found: CpuPlan = next(plan for each in strategies if (plan := each.rule(problem)) is not None)
    return found


def candidates(problem: Problem) -> tuple[CpuPlan, ...]:
    """Plans that the cost model can tell apart, the rules' own first, without repetition: those of the strategies, and
    one thread, a group of rows for each, or the rules' groups, where the work is near the limit of either.

    An edge map has the rules' plan alone: the model's constants are those of sums.
    """
    first = rule_plan(problem)
    if problem.reduce == "map":
        return (first,)
    found = [first]
    work = work_of(problem.nnz, problem.rows, problem.features)
    if problem.threads > 1 and serial_work() < _EITHER_WAY * work < _EITHER_WAY * _EITHER_WAY * serial_work():
        found += [replace(first, groups=groups) for groups in (1, min(problem.threads, max(problem.rows, 1)))]
    found += [plan for each in reversed(STRATEGIES) for plan in each.candidates(problem, first)]
    return tuple(dict.fromkeys(found))


def trials(problem: Problem) -> tuple[CpuPlan, ...]:
    """``candidates``, and plans that only measuring tells from them: narrow rows in lanes or one non-zero after the
    other, half as many column partitions as the rules', twice as many or none, whole rows where the rules slice
    them, slices wherever neighbours gather from, gathers that run ahead or not, more groups, and groups of equally many
    rows.
    """
    found = dict.fromkeys(candidates(problem))
    first, in_lanes = next(iter(found)), may_go_in_lanes(problem)
    for plan in list(found):
        rows = plan.otherwise if isinstance(plan, ScatteredPlan) else plan
        if isinstance(rows, RowPlan):
            for lanes in (True, False) if in_lanes else (False,):
                found[replace(rows, in_lanes=lanes)] = None
    if isinstance(first, PartitionPlan):
        for count in (first.partitions // 2, 2 * first.partitions, 1):
            found[replace(first, partitions=count) if count > 1 else first.otherwise] = None
    width = slice_width(replace(problem, reach=0)) if problem.reduce != "map" else 0
    if isinstance(first, SlicePlan):
        found[first.otherwise] = None
    elif width and not isinstance(first, PartPlan):
        found[SlicePlan.of(problem, width)] = None
    if problem.gathered and problem.table_bytes > machine.private_cache_bytes():
        far = distance(problem.row_bytes, BYTES_AHEAD)
        for plan in list(found):
            for ahead in (0, far // 2, far, 2 * far) if plan.partitions == 1 else (0, far):
                found[replace(plan, prefetch=ahead)] = None
    if first.groups > 1:
        found[replace(first, balance="rows")] = None
        most = min(GROUPS_PER_THREAD * problem.threads, max(problem.rows, 1))
        found[replace(first, groups=most)] = None
    return tuple(found)
