"""Why a plan for a CPU is what it is: the rules of `spmm` and `sddmm` that fired, with their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..compiler.language.reduction import adds
from .cpu.sddmm import LONGEST_AHEAD
from .cpu.slices import SLICE_ROW
from .cpu.spmm import (
    HELD_PARTS,
    LANES_PAY,
    NARROW,
    ORDER_WINDOW,
    SCATTERED_PAYS,
    SLICES,
    USED_AGAIN,
    WORK_OF_NONZERO,
    WORK_OF_ROW,
    held_bytes,
    last_level_is_far,
    pays_in_order,
    serial_work,
    shortest_ahead,
    slices_stay,
    work_of,
)
from .machine import last_level_cache_bytes, private_cache_bytes
from .plan import Plan
from .problem import Problem, operands_of_kind

WORDS: Mapping[str, str] = {
    "groups": "of rows of about equal cost, which threads take one after the other",
    "equal rows": "of as many rows each, whatever they cost",
    "ahead": "so many edges before they are needed, gathered rows are fetched",
    "in lanes": "a vector takes non-zeros of a row side by side",
    "scattered": "each non-zero is added to its row in memory",
    "partitions": "of the columns, gone through one after the other",
    "slices": "of so many features are packed, one after the other, before they are gathered from",
    "in parts": "longer rows are cut, and a second pass adds their parts up",
}
"""What the words of `choose.describe` stand for."""


def reasons(problem: Problem, plan: Plan) -> Iterator[str]:
    """Sentences on ``plan``, which is that of the rules for the problem. Sizes are said to two digits: a problem that
    was rounded for the rules will do.
    """
    reduce, gathered, _ = operands_of_kind(problem.kind)
    mean = problem.nnz / max(problem.rows, 1)
    yield _sharing(problem, plan)
    if gathered:
        yield _ahead(problem, plan, reduce)
    if plan.reduction != "sequential":
        long = f"{mean:.1f}" if mean < 10 else about(round(mean))
        few = f"are at most {NARROW}" if problem.features <= NARROW else "of a maximum are few chains of long steps"
        narrow = f"{problem.features} features {few}, and rows have about {long} non-zeros on average, "
        if plan.reduction == "simd" and problem.typical:
            narrow = (
                f"{problem.features} features are at most {NARROW}, "
                f"and half of all non-zeros are in rows of {about(problem.typical)} and more, "
            )
        yield narrow + (
            f"{LANES_PAY} or more: a vector takes non-zeros of a row side by side (in lanes)."
            if plan.reduction == "simd"
            else f"{SCATTERED_PAYS} at most: each is added to its row in memory (scattered), "
            "so that no loop ends after so few."
        )
    if plan.partitions > 1:
        yield (
            f"Neighbouring rows gather from about {size(problem.nearby_bytes, 2)}, more than {_slice()}: columns are "
            f"cut into {plan.partitions} partitions, which are gone through one after the other, so that what is "
            "gathered again is still there."
        )
    elif in_order(problem, plan):
        yield (
            f"{problem.features} features are few, and rows have about {mean:.1f} non-zeros on average: from the "
            f"call number {USED_AGAIN} on this structure rows are taken in the order of their lengths, "
            f"{ORDER_WINDOW:,} at a time, so that their ends are where the processor expects them."
        )
    if plan.sliced:
        last, one = size(last_level_cache_bytes()), size(problem.cols * SLICE_ROW, 2)
        yield (
            f"Neighbouring rows gather from about {size(problem.nearby_bytes, 2)}, which the last-level cache ({last}) "
            f"does not hold, each row about {about(problem.nnz // max(problem.cols, 1))} times: slices of "
            f"{plan.sliced} features, which it does hold ({one} each), are packed and gone through one after the other."
        )
    if plan.longest_part:
        yield (
            f"The longest row has about {about(problem.longest)} of about {about(problem.nnz)} non-zeros: long rows "
            f"are cut into "
            f"parts of {plan.longest_part:,}, which a second pass adds up, so that no thread is left alone with one."
        )


def in_order(problem: Problem, plan: Plan) -> bool:
    """Whether rows are taken in the order of their lengths once the structure is used again and again."""
    reduce, _, at_edges = operands_of_kind(problem.kind)
    one_pass = plan.partitions == 1 and not plan.longest_part
    return reduce != "map" and one_pass and pays_in_order(problem.rows, problem.nnz, problem.features, at_edges > 0)


def _sharing(problem: Problem, plan: Plan) -> str:
    work = work_of(problem.nnz, problem.rows, problem.features)
    counted = (
        f"The work counts as about {about(work)} multiply-adds (a non-zero as {WORK_OF_NONZERO} at least, and a row "
        f"as {WORK_OF_ROW} more), "
    )
    if plan.groups > 1:
        return (
            f"{counted}{serial_work():,} or more: the {problem.threads} threads share it, in {plan.groups} groups of "
            "rows that cost about the same; whoever is done takes the next."
        )
    if problem.threads < 2:
        return "PyTorch has one thread here (torch.set_num_threads): it takes all rows."
    if work < serial_work():
        return f"{counted}fewer than {serial_work():,}, from which on other threads save more than starting them costs."
    return "There is one row, which one thread takes."


def _ahead(problem: Problem, plan: Plan, reduce: str) -> str:
    row = problem.row_bytes
    table = f"The rows that edges gather have {row:,} bytes, about {size(problem.table_bytes, 2)} in all, "
    shortest = shortest_ahead(adds(reduce), problem.itemsize)
    if reduce == "map":
        cache = f"a core's own cache ({size(private_cache_bytes())})"
    elif row >= shortest or held_bytes() <= private_cache_bytes() // 2:
        cache = f"half of a core's own cache ({size(private_cache_bytes())})"
    else:  # the processor has enough of them under way by itself
        cache = (
            f"1/{HELD_PARTS} of the last-level cache ({size(last_level_cache_bytes())}), "
            f"what counts for rows of less than {shortest} bytes"
        )
    if plan.prefetch:
        return f"{table}more than {cache}: they are fetched {plan.prefetch} edges ahead."
    if reduce == "map" and row > LONGEST_AHEAD:
        return (
            f"{table}but rows of more than {LONGEST_AHEAD:,} bytes the processor fetches ahead by itself: "
            "nothing is fetched ahead."
        )
    if slices_stay(problem.table_bytes, plan.partitions):
        cache = f"a core's own cache ({size(private_cache_bytes())}) in each partition"
    return f"{table}no more than {cache}: nothing is fetched ahead."


def _slice() -> str:
    last = size(last_level_cache_bytes())
    if last_level_is_far():
        return (
            f"half of a core's own cache ({size(private_cache_bytes())}; the last level, {last}, is a whole socket's)"
        )
    return f"1/{SLICES} of the last-level cache ({last})"


def about(count: int) -> str:
    """A count to two digits."""
    return f"{round(count, min(0, 2 - len(str(count)))):,}"


def size(count: float, digits: int = 3) -> str:
    """A number of bytes, to ``digits`` significant digits, with its unit."""
    unit, scale = next(
        ((unit, scale) for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= scale), ("bytes", 1)
    )
    return f"{float(f'{count / scale:.{digits}g}'):,g} {unit}"
