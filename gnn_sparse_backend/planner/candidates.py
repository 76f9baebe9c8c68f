"""The plans that are worth trying for a problem: the plan of the rules, and what differs from it where that may pay."""

from __future__ import annotations

from dataclasses import replace

from ..compiler.language.reduction import adds
from .cpu.prefetch_distance import distance
from .cpu.sddmm import plan_sddmm
from .cpu.slices import slice_width
from .cpu.spmm import (
    BYTES_AHEAD,
    GROUPS_PER_THREAD,
    NARROW,
    fits_lanes,
    plan_spmm,
    serial_work,
    sliced_plan,
    work_of,
)
from .cuda import candidates as cuda_candidates
from .machine import last_level_cache_bytes, private_cache_bytes
from .plan import Plan
from .problem import CudaProblem, Problem, operands_of_kind

# A parallel loop may pay from a quarter of the rules' limit on, and one thread up to four times it.
_EITHER_WAY = 4
# Partitions pay for another pass over the result where each row of the dense operand is gathered so often.
_REUSED_PER_PARTITION = 8
_MOST_PARTITIONS = 8


def rule_plan(problem: Problem) -> Plan:
    """The plan of the rules alone."""
    if type(problem) is CudaProblem:
        return cuda_candidates.rule_plan(problem)
    return (plan_sddmm if operands_of_kind(problem.kind)[0] == "map" else plan_spmm)(problem)


def candidates(problem: Problem) -> tuple[Plan, ...]:
    """Plans that the cost model can tell apart, the rules' own first, without repetition.

    - One thread, a group of rows for each, or the rules' groups, where the work is near the limit of either.
    - Column partitions, where a neighbourhood's rows exceed the last-level cache, each is gathered many times, and the
    rules have none.
    - Long rows whole, where the rules cut them.

    An edge map has the rules' plan alone: the model's constants are those of sums. On a GPU, see `cuda_candidates`.
    """
    if type(problem) is CudaProblem:
        return cuda_candidates.candidates(problem)
    first = rule_plan(problem)
    found = {first: None}
    reduce, gathered, _ = operands_of_kind(problem.kind)
    if reduce == "map":
        return tuple(found)
    work = work_of(problem.nnz, problem.rows, problem.features)
    if problem.threads > 1 and serial_work() < _EITHER_WAY * work < _EITHER_WAY * _EITHER_WAY * serial_work():
        for groups in (1, min(problem.threads, max(problem.rows, 1))):
            found[replace(first, groups=groups)] = None
    if (
        first.partitions == 1
        and not first.sliced
        and gathered
        and problem.reach
        and problem.nearby_bytes > last_level_cache_bytes()
    ):
        partitions = 2
        while partitions <= _MOST_PARTITIONS and problem.nnz > _REUSED_PER_PARTITION * problem.cols * partitions:
            found[replace(first, partitions=partitions, longest_part=0)] = None
            partitions *= 2
    if first.longest_part:
        found[replace(first, longest_part=0)] = None
    return tuple(found)


def trials(problem: Problem) -> tuple[Plan, ...]:
    """``candidates``, and plans that only measuring tells from them: narrow rows in lanes or one non-zero after the
    other, half as many column partitions as the rules', twice as many or none, whole rows where the rules slice
    them, slices wherever neighbours gather from, gathers that run ahead or not, more groups, and groups of equally many
    rows.
    """
    found = dict.fromkeys(candidates(problem))
    if type(problem) is CudaProblem:
        return tuple(found)
    first = next(iter(found))
    reduce, gathered, at_edges = operands_of_kind(problem.kind)
    in_lanes = reduce != "map" and fits_lanes(problem.features, adds(reduce), at_edges > 0, problem.itemsize)
    if in_lanes or (problem.features <= NARROW and reduce != "map"):
        others = {"sequential", first.reduction}
        if in_lanes:
            others.add("simd")
        for plan in list(found):
            for reduction in sorted(others - {plan.reduction}, reverse=True):
                found[replace(plan, reduction=reduction)] = None
    if first.partitions > 1:
        for partitions in (first.partitions // 2, 2 * first.partitions, 1):
            found[replace(first, partitions=partitions)] = None
    if first.sliced:
        found[replace(first, sliced=0)] = None
    elif not first.longest_part and (width := slice_width(replace(problem, reach=0))):
        found[sliced_plan(problem, width)] = None
    if gathered and problem.table_bytes > private_cache_bytes():
        far = distance(problem.row_bytes, BYTES_AHEAD)
        for plan in list(found):
            for ahead in (0, far // 2, far, 2 * far) if plan.partitions == 1 else (0, far):
                found[replace(plan, prefetch=ahead)] = None
    if first.groups > 1:
        found[replace(first, balance="rows")] = None
        most = min(GROUPS_PER_THREAD * problem.threads, max(problem.rows, 1))
        found[replace(first, groups=most)] = None
    return tuple(found)
