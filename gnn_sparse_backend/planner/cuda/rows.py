"""A team of lanes for each row, which share its features or its non-zeros, and long rows in parts.

- What an edge takes to know (its column, number, weight) is loaded by a lane for the whole team, a stretch of edges at
  a time (coalesced row caching: GE-SpMM, section 4.1), where rows fill a stretch on average. All lanes loading the same
  index is one sector of memory for each edge and a wait before each gather; a stretch is loaded in one go, and its
  gathers have their addresses at hand. In shorter rows most lanes of the only stretch would load nothing new.
- Rows of few features and enough non-zeros are summed, or their maxima found, by lanes that walk along the non-zeros
  side by side (parallel reduction: Huang et al., section 3.1): a whole warp, or an eighth of one where rows are shorter
  than that. Messages of few features go to lanes edge by edge: what is stored of neighbouring edges lies side by side.
- A row that is a task of its own is cut into parts, whose results a second pass adds up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from ...frozen import dataclass
from ..problem import CudaProblem
from .plan import NARROW, UNDER_WAY, WARP, CudaPlan, Over, Work, kept_bytes, kind_of, passes, shares, why_not_sorted

# Narrowest team that loads edges in stretches: fewer lanes would hardly have fewer loads.
STRETCH = 8
# The mean non-zeros of a row from which lanes along them pay.
LANES_PAY = 8
# Widest message of an edge that one lane computes by itself.
FEW = 16
# Features of an operator of each kind that go over non-zeros in lanes, at most.
IN_LANES = {"sum": NARROW, "extreme": NARROW, "map": FEW}
# A row of more than ``LONG_ROW`` non-zeros is cut into parts of ``PART``.
LONG_ROW = 2048
PART = 512


@dataclass(frozen=True)
class TeamPartPlan(Over, strategy="teams in parts"):
    """Rows in parts of at most ``part`` non-zeros, which go by the rest."""

    meanings: ClassVar = {"in parts": "longer rows are cut, and another pass adds their parts up"}

    part: int

    def work(self, problem: CudaProblem, longest: float | None = None) -> Work:
        found = self.rest.work(problem, min(max(problem.longest, problem.mean), self.part))
        if kind_of(problem) == "map":
            return found
        parts = min(problem.nnz, problem.rows) + problem.nnz / self.part
        return found._replace(launches=2, stream=kept_bytes(parts, problem.features))

    def __str__(self) -> str:
        return f"{self.rest}, rows in parts of {self.part}"

    def reasons(self, problem: CudaProblem) -> Iterator[str]:
        yield from self.rest.reasons(problem)
        yield (
            f"The longest row has {problem.longest:,} non-zeros, more than {LONG_ROW:,}: long rows are cut into parts "
            f"of {self.part}" + ("." if kind_of(problem) == "map" else ", which a second pass adds up.")
        )


def in_parts(rows: CudaPlan, longest: int) -> CudaPlan:
    """The plan, by parts where the longest row is worth cutting."""
    return TeamPartPlan(rows, PART) if longest > LONG_ROW else rows


@dataclass(frozen=True)
class TeamPlan(CudaPlan, strategy="teams"):
    """The lanes of a team share the features of a row.

    arch: of the GPU. cached: lanes load edges for each other. team: lanes at most, 0 for a warp: with fewer, each has
    several vectors (coarsening).
    """

    meanings: ClassVar = {
        "features to": "lanes of a warp, as many as are said at most, share the features of a row",
        "edges in stretches": "a lane loads each edge for its whole team",
    }

    arch: str
    cached: bool = False
    team: int = 0

    @classmethod
    def rule(cls, problem: CudaProblem) -> CudaPlan:
        return in_parts(cls(problem.arch, problem.mean >= WARP), problem.longest)

    @classmethod
    def candidates(cls, problem: CudaProblem, first: CudaPlan) -> Iterator[CudaPlan]:
        """Edges loaded in stretches or by each lane, in teams that can do either; half as many lanes, each with twice
        as many features; long rows whole or in parts.
        """
        plain = cls(problem.arch, problem.mean >= WARP)
        lanes = shares(problem.features, problem.itemsize).lanes
        if kind_of(problem) != "map" and lanes >= STRETCH:
            yield in_parts(replace(plain, cached=not plain.cached), problem.longest)
        if kind_of(problem) != "map" and lanes > STRETCH:
            yield in_parts(replace(plain, team=lanes // 2), problem.longest)
        if isinstance(in_parts(plain, problem.longest), TeamPartPlan):
            yield plain
        elif problem.longest > PART:
            yield TeamPartPlan(plain, PART)

    def work(self, problem: CudaProblem, longest: float | None = None) -> Work:
        longest = max(problem.longest, problem.mean) if longest is None else longest
        of = shares(problem.features, problem.itemsize, self.team or WARP)
        loads = -(-problem.features // (of.lanes * of.part)) + (1 / of.lanes if self.cached else 1)
        turns = longest * len(passes(problem.features, of)) / (UNDER_WAY if self.cached else 1)
        return Work(1, problem.nnz, problem.nnz * of.lanes * loads, turns, 0.0)

    def __str__(self) -> str:
        most = f"at most {self.team} " if self.team else ""
        return f"features to {most}lanes" + ", edges in stretches" * self.cached

    def reasons(self, problem: CudaProblem) -> Iterator[str]:
        of = shares(problem.features, problem.itemsize)
        yield (
            f"{of.lanes} lanes share the {problem.features} features of a row, {of.part} neighbouring ones at a time"
            + (f"; several rows share a warp of {WARP}." if of.lanes < WARP else ".")
        )
        yield from why_not_sorted(problem)
        if kind_of(problem) != "map" and of.lanes >= STRETCH:
            if self.cached:
                who = f"{WARP} or more: a lane loads each edge of a stretch of {WARP} for all"
            else:
                who = f"fewer than {WARP}: each lane loads the edges by itself"
            yield f"Rows have {problem.mean:.1f} non-zeros on average, {who}."


def stretches(cached: bool, lanes: int, *iterations: str) -> tuple[str, ...]:
    """The iterations over edges that a team of ``lanes`` lanes goes through in stretches: all or none."""
    return iterations if cached and lanes >= STRETCH else ()


@dataclass(frozen=True)
class LanePlan(CudaPlan, strategy="lanes"):
    """arch: of the GPU. lanes: that share the non-zeros of a row."""

    meanings: ClassVar = {"along edges": "the lanes that are said share the non-zeros of a row"}

    arch: str
    lanes: int

    @classmethod
    def rule(cls, problem: CudaProblem) -> CudaPlan | None:
        if not is_narrow(problem) or problem.mean < LANES_PAY:
            return None
        return in_parts(cls(problem.arch, WARP if problem.mean >= WARP else LANES_PAY), problem.longest)

    @classmethod
    def candidates(cls, problem: CudaProblem, first: CudaPlan) -> Iterator[CudaPlan]:
        """8 lanes or 32, for few features."""
        if is_narrow(problem):
            for lanes in (LANES_PAY, WARP):
                yield in_parts(cls(problem.arch, lanes), problem.longest)

    @property
    def otherwise(self) -> CudaPlan:
        return TeamPlan(self.arch)

    def work(self, problem: CudaProblem, longest: float | None = None) -> Work:
        longest = max(problem.longest, problem.mean) if longest is None else longest
        steps = max(problem.rows, 1) * -(-problem.mean // self.lanes) * self.lanes * problem.features
        return Work(1, problem.nnz, steps, -(-longest // self.lanes), 0.0)

    def __str__(self) -> str:
        return f"{self.lanes} lanes along edges"

    def reasons(self, problem: CudaProblem) -> Iterator[str]:
        yield (
            f"{problem.features} features are at most {IN_LANES[kind_of(problem)]}, and rows have {problem.mean:.1f} "
            f"non-zeros on average, {LANES_PAY} or more: {self.lanes} lanes share the non-zeros of a row."
        )
        yield from why_not_sorted(problem)


def is_narrow(problem: CudaProblem) -> bool:
    """Whether an operator has so few features that lanes may go over non-zeros."""
    return 1 <= problem.features <= IN_LANES.get(kind_of(problem), 0)
