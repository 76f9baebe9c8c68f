"""The strategies of a CPU, in the order in which the rules ask them, and what is worth trying beside their choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...compiler.language.reduction import adds
from .. import machine
from ..problem import Problem
from .passes import PartitionPlan, PartPlan
from .prefetch_distance import distance
from .rows import NARROW, CpuPlan, RowPlan, ScatteredPlan, may_go_in_lanes
from .slices import FEWEST_SLICES, SLICE_ROW, SlicePlan, slice_width
from .spmm import BYTES_AHEAD, GROUPS_PER_THREAD, serial_work, work_of

STRATEGIES = PartPlan, SlicePlan, PartitionPlan, ScatteredPlan, RowPlan
# What a search tries: groups for each thread, and non-zeros that gathers run ahead.
_GROUPS_SEARCHED, _AHEAD_SEARCHED = (4, 1, 4 * GROUPS_PER_THREAD), (0, 4, 8, 16, 32)
# Column partitions, and gathers of each row in one, from which it tries them; non-zeros of the longest row's parts.
_PARTITIONS_SEARCHED, _GATHERS_SEARCHED, _PARTS_SEARCHED = (2, 4, 8, 16, 32), 2, (256, 1024, 4096)
# Bytes of the smallest slice of the dense operand that it tries: a first-level cache. How far from the rules' limit of
# one thread it tries one thread and several.
_SMALLEST_SLICE, _FAR_ABOVE = 1 << 15, 16
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


def searched(problem: Problem) -> tuple[CpuPlan, ...]:
    """``trials``, and the strategies that may run a problem at all, each by every schedule: numbers of groups, of equal
    cost or of equally many rows, and how far gathers run ahead.
    """
    found = dict.fromkeys(trials(problem))
    summed, edge_map = adds(problem.reduce), problem.reduce == "map"
    lanes = (False, True) if may_go_in_lanes(problem) else (False,)
    strategies: list[tuple[type[CpuPlan], dict[str, Any]]] = [(RowPlan, {"in_lanes": by}) for by in lanes]
    if summed and problem.features <= NARROW and problem.itemsize >= 4:
        strategies.append((ScatteredPlan, {}))
    if not edge_map and problem.gathered:
        reused = problem.nnz // (_GATHERS_SEARCHED * max(problem.cols, problem.rows, 1))
        counts = [n for n in _PARTITIONS_SEARCHED if n <= reused and problem.table_bytes > n * _SMALLEST_SLICE]
        strategies += [(PartitionPlan, {"in_lanes": by, "partitions": n}) for n in counts for by in lanes]
        if problem.row_bytes >= FEWEST_SLICES * SLICE_ROW and problem.nnz >= problem.cols:
            strategies.append((SlicePlan, {"width": SLICE_ROW // problem.itemsize}))
    if not edge_map and problem.longest:
        parts = [n for n in _PARTS_SEARCHED if n < problem.longest]
        strategies += [(PartPlan, {"in_lanes": by, "part": n}) for n in parts for by in lanes]
    for strategy, parameters in strategies:
        found |= dict.fromkeys(_schedules(problem, strategy, **parameters))
    return tuple(found)


def row_plans(problem: Problem) -> tuple[CpuPlan, ...]:
    """Rows one after the other, by every schedule."""
    return tuple(_schedules(problem, RowPlan))


def _schedules(problem: Problem, strategy: type[CpuPlan], **parameters: Any) -> Iterator[CpuPlan]:
    """The plans of a strategy that a search tries."""
    for groups, balance in _shares_searched(problem):
        for ahead in _AHEAD_SEARCHED if problem.gathered else (0,):
            yield strategy(groups, ahead, balance, **parameters)


def _shares_searched(problem: Problem) -> Iterator[tuple[int, str]]:
    """(groups, what they hold equally much of): one thread where the work is not far above the rules' limit."""
    work, most = work_of(problem.nnz, problem.rows, problem.features), max(problem.rows, 1)
    if problem.threads > 1 and _FAR_ABOVE * work > serial_work():
        yield min(GROUPS_PER_THREAD * problem.threads, most), "nonzeros"
        yield min(GROUPS_PER_THREAD * problem.threads, most), "rows"
        yield from ((min(n * problem.threads, most), "nonzeros") for n in _GROUPS_SEARCHED)
    if problem.threads < 2 or work < _FAR_ABOVE * serial_work():
        yield 1, "nonzeros"
