"""Why a plan for a GPU is what it is: the rules of `cuda_plan` and `cuda_bsr` that fired, with their numbers."""

from __future__ import annotations

from collections.abc import Iterator

from .cuda_candidates import KINDS, may_fill_blocks
from .cuda_plan import BUCKETS_PAY, FEW, LANES_PAY, LONG_ROW, NARROW, SKEWED, STRETCH, WARP, CudaPlan, shares
from .problem import CudaProblem, operands_of_kind


def words(plan: CudaPlan) -> str:
    """A plan in a few words."""
    if plan.segments:
        said = [f"chunks of {WARP} non-zeros"]
    elif plan.buckets:
        said = [f"buckets of up to {plan.longest_part}"]
        said += [f"{plan.partitions} partitions"] * (plan.partitions > 1)
    else:
        said = [f"{plan.lanes} lanes along edges" if plan.lanes else f"features to {f'at most {plan.team} ' if plan.team else ''}lanes"]
    said += ["edges in stretches"] * plan.cached
    said += [f"rows in parts of {plan.longest_part}"] * bool(plan.longest_part and not plan.buckets)
    return ", or ".join(["blocks on Tensor Cores"] * plan.blocks + [", ".join(said)])


def reasons(problem: CudaProblem, plan: CudaPlan) -> Iterator[str]:
    """Sentences on ``plan``, which is that of the rules for the problem."""
    mean = problem.nnz / max(problem.rows, 1)
    kind = KINDS.get(operands_of_kind(problem.kind)[0], "")
    of = shares(problem.features, problem.itemsize)
    yield "On a GPU the plan follows rules, until plans have been measured."
    if may_fill_blocks(problem):
        yield _on_blocks(problem)
    if plan.segments:
        yield (f"{_skewed(problem, mean)}, and a row of {mean:.1f} does not fill a warp: sums of at most {NARROW} features go by "
               f"chunks of {WARP} consecutive non-zeros, whatever rows they belong to, so that all warps do the same work.")
    elif plan.buckets:
        yield (f"{_skewed(problem, mean)}: rows lie in buckets of equal length of up to {plan.longest_part} slots, so that all "
               "teams of a block finish together.")
    elif plan.lanes:
        yield (f"{problem.features} features are at most {NARROW if kind == 'sum' else FEW}, and rows have {mean:.1f} non-zeros on "
               f"average, {LANES_PAY} or more: {plan.lanes} lanes share the non-zeros of a row.")
    else:
        yield (f"{of.lanes} lanes share the {problem.features} features of a row, {of.part} neighbouring ones at a time"
               + (f"; several rows share a warp of {WARP}." if of.lanes < WARP else "."))
    if kind == "sum" and not plan.segments and not plan.buckets:
        yield from _neither_buckets_nor_chunks(problem, mean)
    if not plan.lanes and kind != "map" and of.lanes >= STRETCH:
        if plan.cached:
            who = f"{WARP} or more: a lane loads each edge of a stretch of {WARP} for all"
        else:
            who = f"fewer than {WARP}: each lane loads the edges by itself"
        yield f"Rows have {mean:.1f} non-zeros on average, {who}." if not plan.buckets else _IN_BUCKETS
    if plan.longest_part and not plan.buckets:
        yield (f"The longest row has {problem.longest:,} non-zeros, more than {LONG_ROW:,}: long rows are cut into parts of "
               f"{plan.longest_part}" + ("." if kind == "map" else ", which a second pass adds up."))


_IN_BUCKETS = f"In buckets of {STRETCH} slots and more a lane loads each edge of a stretch of {WARP} for all."


def _skewed(problem: CudaProblem, mean: float) -> str:
    return (f"There are {problem.nnz:,} edges, {BUCKETS_PAY:,} or more, and the longest row has {problem.longest:,} non-zeros, "
            f"{SKEWED} times the mean of {mean:.1f} or more")


def _neither_buckets_nor_chunks(problem: CudaProblem, mean: float) -> Iterator[str]:
    if problem.nnz < BUCKETS_PAY:
        yield f"{problem.nnz:,} edges are fewer than {BUCKETS_PAY:,}, from which on buckets or chunks of rows pay."
    elif problem.longest < SKEWED * max(int(mean), 1):
        yield (f"The longest row has {problem.longest:,} non-zeros, less than {SKEWED} times the mean of {mean:.1f}: rows need "
               "neither buckets nor chunks.")


def _on_blocks(problem: CudaProblem) -> str:
    from .cuda_bsr import MOST_STORED  # with the compiler, which a look at a database goes without

    if problem.slots:
        return (f"Its blocks store {problem.slots / max(problem.nnz, 1):.1f} elements for each non-zero, at most {MOST_STORED}: "
                "Tensor Cores multiply them. What follows is for where they may not.")
    return (f"Not by blocks on Tensor Cores: they would store more than {MOST_STORED} elements for each non-zero, or PyTorch "
            "does not allow them for this type (torch.set_float32_matmul_precision).")


__all__ = ["reasons", "words"]
