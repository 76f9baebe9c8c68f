"""Why a plan for a GPU is what it is: the rules of `plan` and `blocks` that fired, with their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..problem import CudaProblem, operands_of_kind
from .blocks import LEAST_SAVED, MOST_STORED, most_slots
from .candidates import IN_BLOCKS, KINDS, refusal_of_blocks
from .plan import BUCKETS_PAY, HELD, IN_LANES, LANES_PAY, LONG_ROW, NARROW, SKEWED, STRETCH, WARP, CudaPlan, shares
from .tensor_cores import block_of

WORDS: Mapping[str, str] = {
    "blocks on Tensor Cores": "the matrix lies in dense blocks",
    "features to": "lanes of a warp, as many as are said at most, share the features of a row",
    "along edges": "so many lanes share the non-zeros of a row",
    "edges in stretches": "a lane loads each edge for its whole team",
    "buckets": "rows of like length lie together, filled up to the same number of slots",
    "partitions": "of the columns, gone through one after the other in each bucket",
    "chunks": "consecutive non-zeros, whatever rows they belong to, are a warp's work",
    "in parts": "longer rows are cut, and another pass adds their parts up",
}
"""What the words of `words` stand for."""


def words(plan: CudaPlan) -> str:
    """A plan in a few words."""
    if plan.segments:
        said = [f"chunks of {WARP} non-zeros"]
    elif plan.buckets:
        said = [f"buckets of up to {plan.longest_part}"]
        said += [f"{plan.partitions} partitions"] * (plan.partitions > 1)
    else:
        said = [
            f"{plan.lanes} lanes along edges"
            if plan.lanes
            else f"features to {f'at most {plan.team} ' if plan.team else ''}lanes"
        ]
    said += ["edges in stretches"] * plan.cached
    said += [f"{'pieces' if plan.segments else 'rows'} in parts of {plan.longest_part}"] * bool(
        plan.longest_part and not plan.buckets
    )
    return ", else ".join(["blocks on Tensor Cores"] * plan.blocks + [", ".join(said)])


def reasons(problem: CudaProblem, plan: CudaPlan) -> Iterator[str]:
    """Sentences on ``plan``, which is that of the rules for the problem."""
    mean = problem.nnz / max(problem.rows, 1)
    kind = KINDS.get(operands_of_kind(problem.kind)[0], "")
    of = shares(problem.features, problem.itemsize)
    if plan.blocks:
        yield on_blocks(problem)
        yield (
            "The rest is for calls that blocks do not take: "
            "weights that differ by feature, or full precision of float32."
        )
    if plan.segments:
        yield (
            f"{_skewed(problem, mean)}, and a row of {mean:.1f} does not fill a warp: sums of at most {NARROW} "
            f"features go by "
            f"chunks of {WARP} consecutive non-zeros, whatever rows they belong to, so that all warps do the same work."
        )
    elif plan.buckets:
        skewed = problem.longest >= SKEWED * max(int(mean), 1)
        why = _skewed(problem, mean) if skewed else "Column partitions cut rows into short pieces"
        yield (
            f"{why}: rows lie in buckets of equal length of up to {plan.longest_part} slots, as many slots in every "
            "block, so that all teams of a block finish together."
        )
        if plan.partitions > 1:
            yield (
                f"The dense operand has {problem.table_bytes >> 20:,} MiB, and rows of it can count on {HELD:.0%} of "
                f"a cache of {problem.cache >> 20:,} MiB: columns lie in {plan.partitions} partitions, which are "
                "gone through one after the other in each bucket, so that what is gathered again is still there."
            )
    elif plan.lanes:
        yield (
            f"{problem.features} features are at most {IN_LANES[kind]}, and rows have {mean:.1f} non-zeros on "
            f"average, {LANES_PAY} or more: {plan.lanes} lanes share the non-zeros of a row."
        )
    else:
        yield (
            f"{of.lanes} lanes share the {problem.features} features of a row, {of.part} neighbouring ones at a time"
            + (f"; several rows share a warp of {WARP}." if of.lanes < WARP else ".")
        )
    if kind == "sum" and not plan.segments and not plan.buckets:
        yield from _neither_buckets_nor_chunks(problem, mean)
    if not plan.lanes and kind != "map" and of.lanes >= STRETCH:
        if plan.cached:
            who = f"{WARP} or more: a lane loads each edge of a stretch of {WARP} for all"
        else:
            who = f"fewer than {WARP}: each lane loads the edges by itself"
        yield f"Rows have {mean:.1f} non-zeros on average, {who}." if not plan.buckets else _IN_BUCKETS
    if plan.longest_part and plan.segments:
        yield (
            f"The longest row has a piece in each of {problem.longest // WARP:,} chunks or more, more than "
            f"{LONG_ROW:,}: the pieces of "
            f"such rows are added up in parts of {plan.longest_part}, and these by a third pass."
        )
    elif plan.longest_part and not plan.buckets:
        yield (
            f"The longest row has {problem.longest:,} non-zeros, more than {LONG_ROW:,}: long rows are cut into parts "
            f"of "
            f"{plan.longest_part}" + ("." if kind == "map" else ", which a second pass adds up.")
        )
    if problem.kind in IN_BLOCKS and not plan.blocks:
        yield on_blocks(problem)


_IN_BUCKETS = f"In buckets of {STRETCH} slots and more a lane loads each edge of a stretch of {WARP} for all."


def _skewed(problem: CudaProblem, mean: float) -> str:
    return (
        f"There are {problem.nnz:,} edges, {BUCKETS_PAY:,} or more, and the longest row has {problem.longest:,} "
        f"non-zeros, {SKEWED} times the mean of {mean:.1f} or more"
    )


def _neither_buckets_nor_chunks(problem: CudaProblem, mean: float) -> Iterator[str]:
    if problem.nnz < BUCKETS_PAY:
        yield f"{problem.nnz:,} edges are fewer than {BUCKETS_PAY:,}, from which on buckets or chunks of rows pay."
    elif problem.longest < SKEWED * max(int(mean), 1):
        yield (
            f"The longest row has {problem.longest:,} non-zeros, less than {SKEWED} times the mean of {mean:.1f}: "
            "rows need neither buckets nor chunks."
        )


def on_blocks(problem: CudaProblem) -> str:
    """Whether an operator of ``IN_BLOCKS`` goes by blocks on Tensor Cores, in which format, and why."""
    refused = refusal_of_blocks(problem) or ("" if problem.slots else _unfilled(problem))
    if refused:
        return f"Not by blocks on Tensor Cores: {refused}."
    rows, columns = block_of(problem.dtype)
    stored, saved = problem.slots / problem.nnz, 1 - problem.in_sr_bcrs / problem.in_bsr
    if problem.slots == problem.in_bsr:
        name = "BSR"
        why = (
            f"SR-BCRS, without the columns of a block that none of its {rows} rows has, would save {saved:.1%} of "
            f"them. It would have to save more than {LEAST_SAVED:.0%}, for it reads an index for each column."
        )
    else:
        name = "SR-BCRS"
        in_bsr = problem.in_bsr / problem.nnz
        why = f"BSR, with the columns between those that {rows} rows have, would store {in_bsr:.1f} for each"
        why += (
            f", of which SR-BCRS saves {saved:.1%}: more than {LEAST_SAVED:.0%}, which pays for an index for each "
            f"column."
            if saved > LEAST_SAVED
            else f", more than {MOST_STORED}."
        )
    return (
        f"Tensor Cores multiply blocks of {rows} x {columns} in the format {name}. It stores {problem.slots:,} "
        f"elements, of which "
        f"{1 / stored:.1%} are non-zeros: {stored:.1f} for each non-zero, {MOST_STORED} at most. {why}"
    )


def _unfilled(problem: CudaProblem) -> str:
    """Why the blocks of a graph are not taken, of an operator that looks at them."""
    if problem.in_sr_bcrs > most_slots(problem.nnz):
        return (
            f"SR-BCRS would store {problem.in_sr_bcrs / problem.nnz:.1f} elements for each non-zero, more than "
            f"{MOST_STORED}, and BSR never stores fewer"
        )
    if problem.in_sr_bcrs:
        return "edges repeat, and the weights of those that share an element would be added up in no fixed order"
    if problem.dtype == "float32":
        return (
            "they take ten bits of the fraction of a float32, and PyTorch is set to use them all; "
            "torch.set_float32_matmul_precision('high') allows it"
        )
    return "it was not counted what they would store"
