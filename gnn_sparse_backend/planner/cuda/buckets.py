"""Rows in buckets of equal length: hyb(c, k) (SparseTIR, section 4.2.1).

Sums and means of wider rows over the edges of a large graph whose longest row is many times the mean go so: rows in
buckets of ELL rows of 1 to 512 slots, longer ones in parts, all buckets in one launch, the widest first. A team takes
one row of the widest bucket, two of the next, and so on, so that all blocks have equally many slots and finish
together, and loops of known length are unrolled; elsewhere a block waits for the longest of its rows. The widest has
fewer slots where so few teams would not keep a GPU busy (`widest_bucket`). The buckets take up to 24 bytes an edge and
a sort to make, once: that is for graphs that stay, and a million edges are no mini-batch.

Where the dense operand is larger than what the last-level cache holds of it, buckets are made of column partitions, one
after the other: as many as save most bytes of memory, counted (`column_partitions`), two fifths at least.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ...frozen import dataclass
from ..problem import CudaProblem
from . import rows as on_rows
from .plan import (
    HELD,
    IRREGULAR,
    NARROW,
    WARP,
    CudaPlan,
    Work,
    is_large,
    is_skewed,
    kept_bytes,
    kind_of,
    shares,
    why_sorted,
)
from .rows import STRETCH, TeamPlan

# Threads that a launch of buckets has at least, as far as it may: with four gathers of 16 bytes under way in each, four
# megabytes, about what memory needs to be busy (5 TB a second, at 0.8 microseconds).
BUSY = 1 << 16
# Column partitions at most, and the part of the bytes of memory that they have to leave at most.
MOST_PARTITIONS = 64
LEFT = 0.6
# By how much narrower buckets are tried than those of the rules.
NARROWER = 8
# Bytes of a number in the result of a part of a row, at least.
_ACCUMULATED = 4
# Slots for an edge, in buckets of rows of evenly spread lengths.
_SLOTS = 4 / 3


@dataclass(frozen=True)
class BucketPlan(CudaPlan, strategy="buckets"):
    """arch: of the GPU. widest: slots of the widest bucket, a power of two. partitions: of the columns."""

    meanings: ClassVar = {
        "buckets": "rows of like length lie together, filled up to the same number of slots",
        "edges in stretches": "a lane loads each edge for its whole team",
        "partitions": "of the columns, gone through one after the other in each bucket",
    }

    arch: str
    widest: int
    partitions: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.widest < 1 or self.widest & (self.widest - 1):
            raise ValueError(f"the widest bucket has a power of two of slots, not {self.widest}")

    @classmethod
    def rule(cls, problem: CudaProblem) -> BucketPlan | None:
        partitions = partitions_of(problem)
        skewed = is_large(problem) and is_skewed(problem) and problem.features > NARROW
        widest = widest_bucket(problem.nnz, problem.features)
        return cls(problem.arch, widest, partitions) if skewed or partitions > 1 else None

    @classmethod
    def candidates(cls, problem: CudaProblem, first: CudaPlan) -> Iterator[CudaPlan]:
        """Buckets of up to 512 slots, or of 64, where the longest row is twice the mean or more; where the dense
        operand is larger than what the last-level cache holds of it, in column partitions as well: those of the rules,
        half and twice as many, or as many as make slices fit.
        """
        if kind_of(problem) != "sum" or problem.features <= NARROW:
            return
        if is_skewed(problem, IRREGULAR):
            yield cls(problem.arch, on_rows.PART)
            yield cls(problem.arch, on_rows.PART // NARROWER)
        buckets = first if isinstance(first, cls) else cls(problem.arch, on_rows.PART)
        slices = -(-problem.table_bytes // max(1, int(HELD * problem.cache)))
        if slices < 2:
            return
        chosen = buckets.partitions
        counts = 2, min(1 << (slices - 1).bit_length(), MOST_PARTITIONS)
        for count in (1, chosen // 2, min(2 * chosen, MOST_PARTITIONS)) if chosen > 1 else counts:
            yield replace(buckets, partitions=count)

    @property
    def otherwise(self) -> CudaPlan:
        return TeamPlan(self.arch, cached=True)

    def work(self, problem: CudaProblem, longest: float | None = None) -> Work:
        longest = max(problem.longest, problem.mean)
        extra, kept = (_SLOTS - 1) * problem.nnz, 0.0
        if longest > self.widest or self.partitions > 1:
            pieces = min(problem.nnz, problem.rows * self.partitions) + problem.nnz / self.widest
            kept = kept_bytes(pieces, problem.features)
        found = TeamPlan(self.arch, cached=True).work(problem, min(longest, self.widest))
        return found._replace(launches=2, steps=_SLOTS * found.steps, stream=kept + 4 * extra)

    def __str__(self) -> str:
        partitions = f", {self.partitions} partitions" if self.partitions > 1 else ""
        return f"buckets of up to {self.widest}{partitions}, edges in stretches"

    def reasons(self, problem: CudaProblem) -> Iterator[str]:
        why = why_sorted(problem) if is_skewed(problem) else "Column partitions cut rows into short pieces"
        yield (
            f"{why}: rows lie in buckets of equal length of up to {self.widest} slots, as many slots in every "
            "block, so that all teams of a block finish together."
        )
        if self.partitions > 1:
            yield (
                f"The dense operand has {problem.table_bytes >> 20:,} MiB, and rows of it can count on {HELD:.0%} of "
                f"a cache of {problem.cache >> 20:,} MiB: columns lie in {self.partitions} partitions, which are "
                "gone through one after the other in each bucket, so that what is gathered again is still there."
            )
        if shares(problem.features, problem.itemsize).lanes >= STRETCH:
            yield f"In buckets of {STRETCH} slots and more a lane loads each edge of a stretch of {WARP} for all."


def widest_bucket(nnz: int, features: int) -> int:
    """Slots of the widest bucket, a power of two: 512, or fewer where teams for wider buckets would have fewer than
    ``BUSY`` threads together; 32 at least, because each part of a longer row is another result to add up."""
    slots = max(WARP, nnz * shares(features, 4).lanes // BUSY)
    return min(on_rows.PART, 1 << (slots.bit_length() - 1))


def partitions_of(problem: CudaProblem) -> int:
    """Column partitions of a sum of more than a few features over a large graph, by the rules; 1 for anything else."""
    if not is_large(problem) or not problem.gathered or problem.features <= NARROW:
        return 1
    row, result = problem.gathered * problem.row_bytes, problem.features * max(problem.itemsize, _ACCUMULATED)
    return column_partitions(problem.rows, problem.cols, problem.nnz, row, result, problem.cache)


def column_partitions(rows: int, cols: int, nnz: int, row_bytes: int, result_bytes: int, cache: int) -> int:
    """Column partitions that read and write least in memory, by counting; 1 where no other leaves ``LEFT`` of its bytes
    or less.

    row_bytes: of a row of the dense operand. result_bytes: of the result of a part of a row. cache: of the last level.

    Gathers from a slice of the operand miss where the cache has no room for it; buckets of one width after the other
    meet each slice again. Non-zeros are taken to be spread evenly, so that a row has d = nnz / rows of them and
    c (1 - exp(-d / c)) parts in c partitions, each written and read again.
    """
    mean = nnz / max(rows, 1)
    buckets = len(bucket_widths(on_rows.PART))

    def moved(count: int) -> float:
        missing = max(0.0, 1 - HELD * cache * count / max(cols * row_bytes, 1))
        pieces = rows * count * -math.expm1(-mean / count) if count > 1 else 0.0
        return (nnz * missing + min(nnz, buckets * cols)) * row_bytes + 2 * pieces * result_bytes

    counts = [1 << exponent for exponent in range(MOST_PARTITIONS.bit_length())]
    best = min(counts, key=moved)
    return best if moved(best) <= LEFT * moved(1) else 1


def bucket_widths(widest: int) -> tuple[int, ...]:
    """Slots of the rows of each bucket, in the order of the launch: heavy rows first, so that none begins when the rest
    is done.
    """
    return tuple(1 << exponent for exponent in reversed(range(widest.bit_length())))
