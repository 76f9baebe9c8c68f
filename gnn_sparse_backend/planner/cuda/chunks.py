"""Chunks of 32 consecutive non-zeros, a warp each, a lane for each non-zero whatever its row, added up by row in a
segmented scan (non-zero-balanced parallel reduction: Huang et al., sections 3.1 and 3.2).

Sums of few features go so where the longest row of a large graph is many times the mean, and the mean row does not fill
a warp: most rows are then far shorter than the mean, and would leave most lanes of their team idle. A second pass adds
up what chunks cut, 8 lanes a row, since a row of 256 non-zeros has 8 or 9 pieces. Rows that fill a warp go as others:
cutting them would gain nothing for its second pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...frozen import dataclass
from ..problem import CudaProblem
from .plan import IRREGULAR, NARROW, WARP, CudaPlan, Over, Work, is_large, is_skewed, kept_bytes, kind_of, why_sorted
from .rows import LANES_PAY, LONG_ROW, LanePlan, TeamPartPlan, in_parts, is_narrow

_SHUFFLES = 5  # of a scan


@dataclass(frozen=True)
class ChunkPlan(Over, strategy="chunks"):
    """The pieces of rows are added up by the rest."""

    meanings: ClassVar = {"chunks": "consecutive non-zeros, whatever rows they belong to, are a warp's work"}

    @classmethod
    def of(cls, problem: CudaProblem) -> ChunkPlan:
        return cls(in_parts(LanePlan(problem.arch, LANES_PAY), problem.longest // WARP))

    @classmethod
    def rule(cls, problem: CudaProblem) -> ChunkPlan | None:
        skewed = is_large(problem) and is_skewed(problem)
        return cls.of(problem) if skewed and 1 <= problem.features <= NARROW and problem.mean < WARP else None

    @classmethod
    def candidates(cls, problem: CudaProblem, first: CudaPlan) -> Iterator[CudaPlan]:
        if kind_of(problem) == "sum" and is_narrow(problem) and is_skewed(problem, IRREGULAR):
            yield cls.of(problem)

    def work(self, problem: CudaProblem, longest: float | None = None) -> Work:
        pieces, features = max(problem.rows, 1) + problem.nnz / WARP, problem.features
        return Work(2, problem.nnz, problem.nnz * features * (1 + _SHUFFLES), 2.0, kept_bytes(pieces, features))

    def __str__(self) -> str:
        cut = f", pieces in parts of {self.rest.part}" if isinstance(self.rest, TeamPartPlan) else ""
        return f"chunks of {WARP} non-zeros{cut}"

    def reasons(self, problem: CudaProblem) -> Iterator[str]:
        yield (
            f"{why_sorted(problem)}, and a row of {problem.mean:.1f} does not fill a warp: sums "
            f"of at most {NARROW} features go by chunks of {WARP} consecutive non-zeros, whatever rows they belong to, "
            "so that all warps do the same work."
        )
        if isinstance(self.rest, TeamPartPlan):
            yield (
                f"The longest row has a piece in each of {problem.longest // WARP:,} chunks or more, more than "
                f"{LONG_ROW:,}: the pieces of such rows are added up in parts of {self.rest.part}, and these by a "
                "third pass."
            )
