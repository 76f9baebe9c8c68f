"""Several passes over rows: column partitions, or the parts of long rows.

- Column partitions (hyb's c), each of which is gone through for all rows before the next, where each row of the dense
  operand is gathered many times, by rows that lie too far apart for a cache to keep it: as many as make the slice of a
  partition fit a share of the last-level cache, or of a core's own where the last level is a whole socket's, but not so
  many that the pieces of a row are as short as the loop around them.
- Long rows in parts, whose results are reduced in a second pass, where one of them would keep a thread busy that has
  sixteen beside it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import field
from typing import Any, ClassVar

from ...frozen import dataclass
from .. import machine
from ..problem import Problem
from ..words import about, size
from .rows import CpuPlan, RowPlan, pays_in_lanes
from .slices import SlicePlan
from .spmm import ahead_of, groups_of

# Slices of partitions that the last-level cache holds, and non-zeros that a row keeps in each on average. A last level
# of more bytes is a whole socket's, far from its cores and shared with others: there a slice is half of the second
# level.
SLICES = 8
SOCKET = 128 << 20
# Where slices are so small, an operand at the edges, read out of order, costs more than fewer of them save.
FEWEST_WITH_EDGES = 17
PIECE = 6
MOST_PARTITIONS = 64
# Partitions pay for another pass over the result where each row of the dense operand is gathered so often. Partitions
# that are compared at most where the rules have none.
_REUSED_PER_PARTITION, _MOST_COMPARED = 8, 8
# A row with fewer non-zeros is never cut. Where one holds a sixteenth of all, parts are a 64th.
LONG_ROW = 1 << 14
PARTS = 64
UNBALANCED = PARTS // 16


@dataclass(frozen=True)
class PartitionPlan(RowPlan, strategy="partitions"):
    meanings: ClassVar = {"partitions": "of the columns, gone through one after the other"}

    partitions: int = field(kw_only=True)

    @classmethod
    def rule(cls, problem: Problem) -> Any:
        table = problem.reach * problem.row_bytes if problem.gathered else 0
        count = partition_count(problem.rows, problem.nnz, table, problem.at_edges > 0)
        if count > 1:
            lanes = pays_in_lanes(problem, count)
            return cls(groups_of(problem), ahead_of(problem, count), in_lanes=lanes, partitions=count)
        return None

    @classmethod
    def candidates(cls, problem: Problem, first: CpuPlan) -> Iterator[CpuPlan]:
        """Where a neighbourhood's rows exceed the last-level cache, each is gathered many times, and the rules have
        none.
        """
        if isinstance(first, (cls, SlicePlan)) or not problem.gathered or not problem.reach:
            return
        if problem.nearby_bytes > machine.last_level_cache_bytes():
            rows, count = first.otherwise, 2
            while count <= _MOST_COMPARED and problem.nnz > _REUSED_PER_PARTITION * problem.cols * count:
                yield cls(rows.groups, rows.prefetch, rows.balance, rows.in_lanes, partitions=count)
                count *= 2

    @property
    def order(self) -> Hashable:  # type: ignore[override]
        return self.strategy, self.partitions

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.partitions} partitions"

    def reasons(self, problem: Problem) -> Iterator[str]:
        yield from super().reasons(problem)
        last, own = size(machine.last_level_cache_bytes()), size(machine.private_cache_bytes())
        held = f"1/{SLICES} of the last-level cache ({last})"
        if last_level_is_far():
            held = f"half of a core's own cache ({own}; the last level, {last}, is a whole socket's)"
        yield (
            f"Neighbouring rows gather from about {size(problem.nearby_bytes, 2)}, more than {held}: columns are "
            f"cut into {self.partitions} partitions, which are gone through one after the other, so that what is "
            "gathered again is still there."
        )


@dataclass(frozen=True)
class PartPlan(RowPlan, strategy="parts"):
    """part: non-zeros of a part at most."""

    meanings: ClassVar = {"in parts": "longer rows are cut, and a second pass adds their parts up"}

    part: int = field(kw_only=True)

    @classmethod
    def rule(cls, problem: Problem) -> Any:
        part = part_length(problem.nnz, problem.longest)
        lanes = pays_in_lanes(problem)
        return cls(groups_of(problem), ahead_of(problem), in_lanes=lanes, part=part) if part else None

    @classmethod
    def candidates(cls, problem: Problem, first: CpuPlan) -> Iterator[CpuPlan]:
        """Long rows whole, where the rules cut them."""
        if isinstance(first, cls):
            yield first.otherwise

    @property
    def order(self) -> Hashable:  # type: ignore[override]
        return self.strategy, self.part

    def __str__(self) -> str:
        return f"{super().__str__()}, rows in parts of {self.part}"

    def reasons(self, problem: Problem) -> Iterator[str]:
        yield from super().reasons(problem)
        yield (
            f"The longest row has about {about(problem.longest)} of about {about(problem.nnz)} non-zeros: long rows "
            f"are cut into parts of {self.part:,}, which a second pass adds up, so that no thread is left alone with "
            "one."
        )


def partition_count(rows: int, nnz: int, table: int, edges: bool = False) -> int:
    """Column partitions, a power of two; 1 where they do not pay.

    table: bytes of the dense operand that are gathered from in a neighbourhood. edges: there is an operand at the
        edges, which partitions do not read in order.
    """
    slices = -(-table // slice_bytes())
    pieces = min(nnz // (PIECE * max(rows, 1)), MOST_PARTITIONS)
    fewest = FEWEST_WITH_EDGES if edges and last_level_is_far() else 2
    if slices < fewest or pieces < 4:
        return 1
    return min(1 << (slices - 1).bit_length(), 1 << (pieces.bit_length() - 1))


def slice_bytes() -> int:
    """Bytes of the dense operand that a partition is to gather from at most."""
    return machine.private_cache_bytes() // 2 if last_level_is_far() else machine.last_level_cache_bytes() // SLICES


def last_level_is_far() -> bool:
    """Whether the last-level cache is a whole socket's."""
    return machine.last_level_cache_bytes() > SOCKET


def part_length(nnz: int, longest: int) -> int:
    """How long the parts of long rows are, for any number of threads; 0 where no row is worth cutting."""
    share = nnz // PARTS
    return max(share, LONG_ROW // PARTS) if longest >= LONG_ROW and longest > UNBALANCED * share else 0
