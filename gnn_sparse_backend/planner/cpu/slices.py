"""Slices of features, packed, rows side by side, before they are gathered from; one slice after the other.

They pay where rows are wide, each is gathered often, and no cache holds what a neighbourhood gathers but one holds a
slice of all rows. Measured in docs/decisions/slices-of-wide-operands.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import ClassVar

from ...frozen import dataclass
from .. import machine
from ..problem import Problem
from ..words import about, size
from .prefetch_distance import distance
from .rows import CpuPlan
from .spmm import BYTES_AHEAD, groups_of

# Bytes of a row of a slice: two lines, which the processor fetches together. Slices of an operand, fewer of which save
# less than packing takes.
SLICE_ROW, FEWEST_SLICES = 128, 4
# Parts of the last-level cache that all slices side by side have to fill, and that one may take.
BEYOND, SLICE_SHARE = 2 / 3, 1 / 2
# How often each row has to be gathered for packing it to pay.
GATHERED_PAYS = 8


@dataclass(frozen=True)
class SlicePlan(CpuPlan, strategy="slices"):
    """width: features of a slice."""

    meanings: ClassVar = {"slices": "that number of features of all rows is packed, and gathered from, before the next"}

    width: int = field(kw_only=True)

    @classmethod
    def of(cls, problem: Problem, width: int) -> SlicePlan:
        """The plan by slices of ``width`` features, whose rows are fetched ahead: they come from the last level."""
        return cls(groups_of(problem), distance(SLICE_ROW, BYTES_AHEAD), width=width)

    @classmethod
    def rule(cls, problem: Problem) -> SlicePlan | None:
        width = slice_width(problem)
        return cls.of(problem, width) if width and problem.nnz >= GATHERED_PAYS * problem.cols else None

    def counts(self, problem: Problem) -> dict[str, float]:
        """Counts of passes over the slices, and of packing: a parallel region, and a copy that is read, made and
        kept.
        """
        one, slices = super().counts(replace(problem, features=self.width)), problem.features / self.width
        found = {name: count * slices for name, count in one.items()}
        found["start"] *= 2
        found["stream"] += 2 * problem.gathered * problem.table_bytes / problem.threads
        return found

    def __str__(self) -> str:
        return f"{super().__str__()}, slices of {self.width}"

    def reasons(self, problem: Problem) -> Iterator[str]:
        yield from super().reasons(problem)
        last, one = size(machine.last_level_cache_bytes()), size(problem.cols * SLICE_ROW, 2)
        yield (
            f"Neighbouring rows gather from about {size(problem.nearby_bytes, 2)}, which the last-level cache ({last}) "
            f"does not hold, each row about {about(problem.nnz // max(problem.cols, 1))} times: slices of "
            f"{self.width} features, which it does hold ({one} each), are packed and gone through one after the other."
        )


def slice_width(problem: Problem) -> int:
    """Features of a slice where slices can be held that whole rows cannot; 0 where they gain nothing."""
    if not problem.gathered or not may_slice(problem.cols, problem.row_bytes):
        return 0
    last = machine.last_level_cache_bytes()
    if problem.nearby_bytes <= BEYOND * last or problem.cols * SLICE_ROW * problem.gathered > SLICE_SHARE * last:
        return 0
    return SLICE_ROW // problem.itemsize


def may_slice(cols: int, row_bytes: int) -> bool:
    """Whether an operand of ``cols`` rows is wide and large enough, wherever its rows are gathered from."""
    return row_bytes >= FEWEST_SLICES * SLICE_ROW and cols * row_bytes > BEYOND * machine.last_level_cache_bytes()
