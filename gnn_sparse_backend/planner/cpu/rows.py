"""One pass over rows, one non-zero after the other, in lanes or scattered. Edge maps and attention go by rows, too.

- Lanes where features are few, in whole vectors, and most non-zeros stand in rows of some tens of them: a vector of
  non-zeros is reduced for each feature (Huang et al., section 3.1). Short rows are independent chains of additions
  already: the processor has several of them under way. A step of a maximum waits longer than one of a sum, so that
  there lanes pay with more features.
- Scattered sums, one loop over all non-zeros of a group, each of which adds to its row of the result, where features
  are few and rows have a handful of non-zeros, where the end of each row is mispredicted. A long row is one chain of
  additions in memory, twice as slow as in a register: not where such rows have a good part of the non-zeros.
- Rows in the order of their lengths, within windows, where they have a few features and at most some tens of non-zeros:
  the end of each is then where the processor expects it. A structure that is used once is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ...compiler.language.reduction import adds
from ...frozen import dataclass
from .. import machine
from ..cost import counts_of_rows
from ..plan import Plan
from ..problem import Problem
from ..words import about
from .spmm import ahead_of, groups_of, why_ahead, why_shared

# Widest row of features that is narrow. Widths that are cut into lanes, and those of sums and of maxima without an
# operand at the edges: code for vectors of other widths takes up to twice as long. The non-zeros of the row of a
# typical non-zero, or of its piece in a partition, from which that pays.
NARROW = 8
IN_LANES, SUMMED_IN_LANES, CHOSEN_IN_LANES = (1, 4, 8), (1, 2, 4, 8), (1, 4, 8, 16, 32)
LANES_PAY = 24
# Most non-zeros of a mean row whose sums are scattered, and fewest of a graph: the row of each non-zero is kept for it.
SCATTERED_PAYS = 6
FEWEST_SCATTERED = 1 << 15
# Where one row has a 32nd of all non-zeros, there are others, and sums are not scattered.
LONGEST_SCATTERED = 32
# Consecutive rows that are put in the order of their lengths, and calls on a structure from which that is done.
# Non-zeros from which it pays, most of a mean row, and features of the widest; the last two where an operand at the
# edges is then read by the numbers of the edges, out of order, and these do not stay in a core's own cache.
ORDER_WINDOW, USED_AGAIN = 2048, 8
FEWEST_ORDERED, ORDERED_PAYS, WIDEST_ORDERED = 1 << 15, 64, 16
ORDERED_WITH_EDGES, WIDEST_WITH_EDGES, NUMBER_BYTES = 8, 2, 4


@dataclass(frozen=True)
class CpuPlan(Plan):
    """A plan whose kernels are for a CPU.

    groups: row groups of the parallel loop, 1 for one thread.
    prefetch: how many non-zeros the gathers look ahead, 0 for none.
    balance: what the groups hold equally much of: "nonzeros" or "rows" (Huang et al., section 3.2).

    These leave every bit of the result as it is. The rest decides the order of additions (but slices, and whether
    sequential sums are scattered), so it must not depend on the number of threads.

    in_lanes: whether a vector takes non-zeros of a row side by side; else a vector of features walks along them.
    partitions: column partitions, each of which is gone through for all rows before the next.
    """

    meanings: ClassVar = {
        "groups": "of rows of about equal cost, which threads take one after the other",
        "equal rows": "of as many rows each, whatever they cost",
        "ahead": "gathered rows are fetched that number of edges before they are needed",
        "in lanes": "a vector takes non-zeros of a row side by side",
    }

    groups: int
    prefetch: int = 0
    balance: str = "nonzeros"

    in_lanes = False
    partitions = 1

    @property
    def otherwise(self) -> RowPlan:
        return RowPlan(self.groups, self.prefetch, self.balance, self.in_lanes)

    def counts(self, problem: Problem) -> dict[str, float]:
        return counts_of_rows(problem, self.groups, self.prefetch > 0, self.in_lanes, self.partitions)

    def __str__(self) -> str:
        words = "1 thread" if self.groups == 1 else f"{self.groups} groups"
        if self.balance == "rows" and self.groups > 1:
            words += " of equal rows"
        return words + (f", {self.prefetch} ahead" if self.prefetch else "") + ", in lanes" * self.in_lanes

    def reasons(self, problem: Problem) -> Iterator[str]:
        yield why_shared(problem, self.groups)
        if problem.gathered:
            yield why_ahead(problem, self.prefetch, self.partitions)


@dataclass(frozen=True)
class RowPlan(CpuPlan, strategy="rows"):
    """One non-zero after the other, or in lanes."""

    in_lanes: bool = False

    @property
    def reduction(self) -> str:
        """How kernels reduce."""
        return "simd" if self.in_lanes else "sequential"

    @classmethod
    def rule(cls, problem: Problem) -> Any:
        return cls(groups_of(problem), ahead_of(problem), in_lanes=pays_in_lanes(problem))

    def reasons(self, problem: Problem) -> Iterator[str]:
        yield from super().reasons(problem)
        if self.in_lanes:
            long = why_narrow(problem)
            if problem.typical:
                long = (
                    f"{problem.features} features are at most {NARROW}, "
                    f"and half of all non-zeros are in rows of {about(problem.typical)} and more, "
                )
            yield f"{long}{LANES_PAY} or more: a vector takes non-zeros of a row side by side (in lanes)."
        if self.order is None:
            yield from why_in_order(problem)


@dataclass(frozen=True)
class ScatteredPlan(CpuPlan, strategy="scattered"):
    """For sums and means alone, and not for half types."""

    meanings: ClassVar = {"scattered": "each non-zero is added to its row in memory"}

    @classmethod
    def rule(cls, problem: Problem) -> ScatteredPlan | None:
        narrow = adds(problem.reduce) and problem.features <= NARROW and problem.itemsize >= 4
        return cls(groups_of(problem), ahead_of(problem)) if narrow and pays_scattered(problem) else None

    def counts(self, problem: Problem) -> dict[str, float]:
        added = problem.nnz / min(problem.threads, self.groups)
        return {**super().counts(problem), "row": 0.0, "chain": 0.0, "scatter": added}

    def __str__(self) -> str:
        return f"{super().__str__()}, scattered"

    def reasons(self, problem: Problem) -> Iterator[str]:
        yield from super().reasons(problem)
        yield (
            f"{why_narrow(problem)}{SCATTERED_PAYS} at most: each is added to its row in memory (scattered), "
            "so that no loop ends after so few."
        )
        yield from why_in_order(problem)


def pays_in_lanes(problem: Problem, partitions: int = 1) -> bool:
    """Whether a problem goes in lanes, by the rules."""
    typical = problem.typical or problem.nnz // max(problem.rows, 1)
    return may_go_in_lanes(problem) and typical >= LANES_PAY * partitions


def may_go_in_lanes(problem: Problem) -> bool:
    """Whether rows of a problem may be taken in lanes."""
    if problem.reduce == "map":
        return False
    # half types are taken two features at a time then
    if problem.at_edges or (problem.itemsize < 4 and problem.features > NARROW):
        return problem.features in IN_LANES
    return problem.features in (SUMMED_IN_LANES if adds(problem.reduce) else CHOSEN_IN_LANES)


def pays_in_order(rows: int, nnz: int, features: int, edges: bool) -> bool:
    """Whether the ends of rows cost enough that rows are better taken in the order of their lengths. edges: there
    is an operand at the edges, which is not read in their order.
    """
    longest, widest = ORDERED_PAYS, WIDEST_ORDERED
    if edges and NUMBER_BYTES * nnz > machine.private_cache_bytes():
        # instead of additions in memory, or of rows as they stand
        longest, widest = ORDERED_WITH_EDGES, NARROW if nnz <= SCATTERED_PAYS * rows else WIDEST_WITH_EDGES
    return FEWEST_ORDERED <= nnz <= longest * rows and features <= widest


def pays_scattered(problem: Problem) -> bool:
    """Whether rows are so short that the ends of most of them cost more than additions in memory."""
    short = FEWEST_SCATTERED <= problem.nnz <= SCATTERED_PAYS * problem.rows
    return short and problem.longest * LONGEST_SCATTERED <= problem.nnz


def why_in_order(problem: Problem) -> Iterator[str]:
    """Say that rows are taken in the order of their lengths once the structure is used often, where they are."""
    edges = problem.at_edges > 0
    if problem.reduce != "map" and pays_in_order(problem.rows, problem.nnz, problem.features, edges):
        yield (
            f"{problem.features} features are few, and rows have about {problem.mean:.1f} non-zeros on average: from "
            f"the call number {USED_AGAIN} on this structure rows are taken in the order of their lengths, "
            f"{ORDER_WINDOW:,} at a time, so that their ends are where the processor expects them."
        )


def why_narrow(problem: Problem) -> str:
    """The beginning of a sentence on few features, and on the mean row."""
    few = f"are at most {NARROW}" if problem.features <= NARROW else "of a maximum are few chains of long steps"
    mean = f"{problem.mean:.1f}" if problem.mean < 10 else about(round(problem.mean))
    return f"{problem.features} features {few}, and rows have about {mean} non-zeros on average, "
