"""The plans that are worth trying on a GPU: that of the rules, and those that differ from it in what rules decide by
sizes.
"""

from __future__ import annotations

from dataclasses import replace

from ...compiler.language.reduction import REDUCTIONS
from ..problem import CudaProblem, operands_of_kind
from . import plan as cuda_plan
from .blocks import refusal
from .plan import (
    IN_LANES,
    LANES_PAY,
    NARROW,
    STRETCH,
    WARP,
    CudaPlan,
    column_partitions,
    part_length,
    plan_cuda,
    shares,
    widest_bucket,
)

# What an operator is to the rules, by its reduction.
KINDS = {"map": "map"} | {
    name: "sum" if each.adds else "extreme" if each.chooses else "" for name, each in REDUCTIONS.items()
}
# Sums that products of blocks are, of features of columns, times numbers of edges and of columns (the gradient of a
# mean).
IN_BLOCKS = frozenset(
    f"{reduce}:{places}"
    for reduce in ("sum", "mean")
    for places in ("column", "column,column", "column,edge", "column,column,edge")
)
# By how much narrower buckets are tried than those of the rules, and how many times the mean the longest row is for
# buckets and chunks to be tried.
_NARROWER = 8
# Bytes of a number in the result of a part of a row, at least.
_ACCUMULATED = 4
_IRREGULAR = 2


def rule_plan(problem: CudaProblem) -> CudaPlan:
    """The plan of the rules alone. Its ``blocks`` say that it is worth looking whether the graph fills blocks."""
    kind = KINDS.get(operands_of_kind(problem.kind)[0], "")
    plan = plan_cuda(problem.arch, problem.rows, problem.nnz, problem.features, problem.longest, kind)
    partitions = partitions_of(problem)
    if partitions > 1:
        widest = widest_bucket(problem.nnz, problem.features)
        plan = CudaPlan(longest_part=widest, arch=problem.arch, cached=True, buckets=True, partitions=partitions)
    return replace(plan, blocks=True) if may_fill_blocks(problem) else plan


def partitions_of(problem: CudaProblem) -> int:
    """Column partitions of a sum of more than a few features over a large graph, by the rules; 1 for anything else."""
    reduce, gathered, _ = operands_of_kind(problem.kind)
    if KINDS.get(reduce) != "sum" or not gathered or problem.features <= NARROW or problem.nnz < cuda_plan.BUCKETS_PAY:
        return 1
    result = problem.features * max(problem.itemsize, _ACCUMULATED)
    return column_partitions(
        problem.rows, problem.cols, problem.nnz, gathered * problem.row_bytes, result, problem.cache
    )


def may_fill_blocks(problem: CudaProblem) -> bool:
    """Whether the operator goes by blocks on Tensor Cores if the graph fills them."""
    return problem.kind in IN_BLOCKS and not refusal_of_blocks(problem)


def refusal_of_blocks(problem: CudaProblem) -> str:
    """Why an operator of ``IN_BLOCKS`` does not go by blocks, whatever the graph makes of them, in words; "" where it
    may.
    """
    return refusal(problem.nnz, problem.features, problem.dtype, problem.arch, "," in problem.kind)


def candidates(problem: CudaProblem) -> tuple[CudaPlan, ...]:
    """Plans to compare, without repetition, the rules' own first, with ``blocks`` only if the graph fills them.

    - Blocks on Tensor Cores or not, where the graph fills them (``problem.slots``).
    - Sums and maxima of few features: to lanes, along the non-zeros by 8 lanes or 32, by chunks (sums) where rows
    differ in length.
    - Other sums: buckets of up to 512 slots, or of 64, where the longest row is twice the mean or more; where the dense
      operand is larger than what the last-level cache holds of it, in column partitions as well: those of the rules,
      half and twice as many, or as many as make slices fit.
    - Edges loaded in stretches or by each lane, in teams that can do either.
    - Half as many lanes for a row, each with twice as many features.
    - Long rows in parts, or whole.
    """
    first = replace(rule_plan(problem), blocks=problem.slots > 0)
    kind = KINDS.get(operands_of_kind(problem.kind)[0], "")
    part, mean = part_length(problem.longest), problem.nnz // max(problem.rows, 1)
    plain = CudaPlan(longest_part=part, arch=problem.arch, cached=mean >= WARP)
    others = [replace(first, blocks=False), plain]
    if problem.features <= IN_LANES.get(kind, 0):
        reduction = "sequential" if kind == "map" else "simd"
        others += [replace(plain, cached=False, reduction=reduction, lanes=lanes) for lanes in (LANES_PAY, WARP)]
        if kind == "sum" and problem.longest >= _IRREGULAR * max(mean, 1):
            pieces = part_length(problem.longest // WARP)
            others.append(
                CudaPlan(reduction=reduction, longest_part=pieces, arch=problem.arch, lanes=LANES_PAY, segments=True)
            )
    elif kind == "sum" and problem.longest >= _IRREGULAR * max(mean, 1):
        others += [
            CudaPlan(longest_part=widest, arch=problem.arch, cached=True, buckets=True)
            for widest in (cuda_plan.PART, cuda_plan.PART // _NARROWER)
        ]
    if kind == "sum" and problem.features > NARROW:
        buckets = (
            first
            if first.buckets
            else CudaPlan(longest_part=cuda_plan.PART, arch=problem.arch, cached=True, buckets=True)
        )
        others += [replace(buckets, blocks=False, partitions=count) for count in _partitions(problem, first.partitions)]
    lanes = shares(problem.features, problem.itemsize).lanes
    if kind != "map" and lanes >= STRETCH:
        others.append(replace(plain, cached=not plain.cached))
    if kind != "map" and lanes > STRETCH:
        others.append(replace(plain, team=lanes // 2))
    if part or problem.longest > cuda_plan.PART:
        others.append(replace(plain, longest_part=0 if part else cuda_plan.PART))
    return tuple(dict.fromkeys((first, *others)))


def _partitions(problem: CudaProblem, chosen: int) -> tuple[int, ...]:
    """Column partitions to try beside ``chosen``: none where the cache holds the dense operand."""
    slices = -(-problem.table_bytes // max(1, int(cuda_plan.HELD * problem.cache)))
    if slices < 2:
        return ()
    if chosen > 1:
        return 1, chosen // 2, min(2 * chosen, cuda_plan.MOST_PARTITIONS)
    return 2, min(1 << (slices - 1).bit_length(), cuda_plan.MOST_PARTITIONS)
