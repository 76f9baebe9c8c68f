"""The plans that are worth trying on a GPU: that of the rules, and those that differ from it in what rules decide by sizes."""

from __future__ import annotations

from dataclasses import replace

from . import cuda_plan
from .cuda_plan import FEW, LANES_PAY, NARROW, STRETCH, WARP, CudaPlan, part_length, plan_cuda, shares
from .problem import CudaProblem, operands_of_kind

# What an operator is to the rules, by its reduction.
KINDS = {"sum": "sum", "mean": "sum", "map": "map"}
# Sums that products of blocks are, of features of columns, times numbers of edges and of columns (the gradient of a mean).
IN_BLOCKS = frozenset(f"{reduce}:{places}" for reduce in ("sum", "mean")
                      for places in ("column", "column,column", "column,edge", "column,column,edge"))
# By how much narrower buckets are tried than those of the rules, and how many times the mean the longest row is for buckets and
# chunks to be tried.
_NARROWER = 8
_IRREGULAR = 2


def rule_plan(problem: CudaProblem) -> CudaPlan:
    """The plan of the rules alone. Its ``blocks`` say that it is worth looking whether the graph fills blocks."""
    kind = KINDS.get(operands_of_kind(problem.kind)[0], "")
    plan = plan_cuda(problem.arch, problem.rows, problem.nnz, problem.features, problem.longest, kind)
    return replace(plan, blocks=True) if may_fill_blocks(problem) else plan


def may_fill_blocks(problem: CudaProblem) -> bool:
    """Whether the operator goes by blocks on Tensor Cores if the graph fills them."""
    return problem.kind in IN_BLOCKS and not refusal_of_blocks(problem)


def refusal_of_blocks(problem: CudaProblem) -> str:
    """Why an operator of ``IN_BLOCKS`` does not go by blocks, whatever the graph makes of them, in words; "" where it may."""
    from .cuda_bsr import refusal  # with the compiler, which a look at a database goes without

    return refusal(problem.nnz, problem.features, problem.dtype, problem.arch, "," in problem.kind)


def candidates(problem: CudaProblem) -> tuple[CudaPlan, ...]:
    """Plans to compare, without repetition, the rules' own first, with ``blocks`` only if the graph fills them.

    - Blocks on Tensor Cores or not, where the graph fills them (``problem.slots``).
    - Sums of few features: to lanes, along the non-zeros by 8 lanes or 32, by chunks where rows differ in length.
    - Other sums: buckets of up to 512 slots, or of 64, where the longest row is twice the mean or more.
    - Edges loaded in stretches or by each lane, in teams that can do either.
    - Half as many lanes for a row, each with twice as many features.
    - Long rows in parts, or whole.
    """
    first = replace(rule_plan(problem), blocks=problem.slots > 0)
    kind = KINDS.get(operands_of_kind(problem.kind)[0], "")
    part, mean = part_length(problem.longest), problem.nnz // max(problem.rows, 1)
    plain = CudaPlan(longest_part=part, arch=problem.arch, cached=mean >= WARP)
    others = [replace(first, blocks=False), plain]
    if problem.features <= {"sum": NARROW, "map": FEW}.get(kind, 0):
        reduction = "parallel" if kind == "sum" else "sequential"
        others += [replace(plain, cached=False, reduction=reduction, lanes=lanes) for lanes in (LANES_PAY, WARP)]
        if kind == "sum" and problem.longest >= _IRREGULAR * max(mean, 1):
            pieces = part_length(problem.longest // WARP)
            others.append(CudaPlan(reduction=reduction, longest_part=pieces, arch=problem.arch, lanes=LANES_PAY, segments=True))
    elif kind == "sum" and problem.longest >= _IRREGULAR * max(mean, 1):
        others += [CudaPlan(longest_part=widest, arch=problem.arch, cached=True, buckets=True)
                   for widest in (cuda_plan.PART, cuda_plan.PART // _NARROWER)]  # fmt: skip
    lanes = shares(problem.features, problem.itemsize).lanes
    if kind != "map" and lanes >= STRETCH:
        others.append(replace(plain, cached=not plain.cached))
    if kind != "map" and lanes > STRETCH:
        others.append(replace(plain, team=lanes // 2))
    if part or problem.longest > cuda_plan.PART:
        others.append(replace(plain, longest_part=0 if part else cuda_plan.PART))
    return tuple(dict.fromkeys((first, *others)))


__all__ = ["IN_BLOCKS", "KINDS", "candidates", "may_fill_blocks", "refusal_of_blocks", "rule_plan"]
