"""Plans for a GPU: the threads that work on a row together, and the features of each.

Rules, none of which has been measured on a GPU yet, are those of the strategies: a file each beside this one. What they
share:

- A team of lanes of one warp works on a row. The hardware takes rows as it gets through them, so that rows need no
  groups of equal cost; a row that is a task of its own is cut into parts (`rows`).
- Features go to lanes in vectors of 16 bytes (8 of 16-bit types) where the width divides (vector loads; Huang et al.,
  section 4.2). Teams are as many lanes as that takes, so that a warp has several narrow rows under way (GE-SpMM's
  coarsening, Huang et al., SC 2020, turned round), and 32 at most: of a wider row each lane has several vectors.
- Sums over a width (SDDMM, scores of attention) are shared out the same way and added up by shuffles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...compiler.language.reduction import REDUCTIONS
from ...frozen import dataclass
from ..cost import compulsory_bytes, touched
from ..plan import Plan
from ..problem import CudaProblem

WARP = 32
# Threads of a block: enough for full occupancy at 64 registers each, few enough that a heavy row holds up few others.
BLOCK = 128
# Bytes of a vector load, and elements of one at most: TVM has no longer vectors of float32.
VECTOR_BYTES = 16
LONGEST_VECTOR = 4
# Features that a lane accumulates in one pass over the edges at most: what leaves room for occupancy.
MOST_ACCUMULATORS = 32
# Share of the last-level cache that rows of the dense operand can count on.
HELD = 0.5
# Widest row whose sums go over non-zeros in lanes, or by chunks of non-zeros.
NARROW = 4
# Non-zeros of a graph that is worth putting into buckets or chunks, and how many times the mean its longest row is;
# and how many times for these to be tried.
BUCKETS_PAY = 1 << 20
SKEWED = 8
IRREGULAR = 2
# Bytes that memory gives at a time.
SECTOR = 32
# Gathers of a team that are under way at once where edges are loaded in stretches, or of known number.
UNDER_WAY = 4
# What an operator is to the rules, by its reduction.
KINDS = {"map": "map"} | {
    name: "sum" if each.adds else "extreme" if each.chooses else "" for name, each in REDUCTIONS.items()
}


class Work(NamedTuple):
    """What plans differ in. launches: one after the other. gathers: rows of each dense operand. steps: of lanes.
    turns: of the longest task. stream: bytes in order beyond those of every plan.
    """

    launches: int
    gathers: float
    steps: float
    turns: float
    stream: float


@dataclass(frozen=True)
class CudaPlan(Plan):
    """A plan whose kernels are for a GPU.

    Every row is a team's work, so groups do not depend on the graph, and graphs of all sizes share their plans and
    kernels.

    partitions: column partitions, each of which is gone through for all rows before the next.
    """

    late = "gpu"
    groups = 1
    balance = "teams"
    partitions = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for lanes in (vars(self).get("lanes", 0), vars(self).get("team", 0)):
            if lanes & (lanes - 1) or lanes > WARP:
                raise ValueError(f"a team has 1, 2, 4, 8, 16 or {WARP} lanes, not {lanes}")

    if TYPE_CHECKING:

        @property
        def arch(self) -> str:
            """The compute architecture, "sm_90"."""

    def work(self, problem: CudaProblem, longest: float | None = None) -> Work:
        """longest: non-zeros of the longest row that is a team's work; those of the problem by default."""
        raise NotImplementedError

    def counts(self, problem: CudaProblem) -> dict[str, float]:
        """How many of each of `cost.UNITS` there are; steps and bytes of the whole GPU, turns of its longest task."""
        work = self.work(problem)
        written = problem.nnz * problem.itemsize if problem.reduce == "map" else 0
        stream = (
            4.0 * (problem.rows + 1 + problem.nnz)
            + problem.at_edges * problem.nnz * problem.itemsize
            + problem.rows * problem.row_bytes
            + written
            + work.stream
        )
        cold = min(1.0, compulsory_bytes(problem) / problem.cache)
        row = -(-problem.row_bytes // SECTOR) * SECTOR
        first = min(touched(problem), work.gathers)
        held, table = HELD * problem.cache * self.partitions, problem.table_bytes
        missing = max(0.0, 1 - held / table) if table else 0.0
        far = cold * row * (first + (work.gathers - first) * missing) * problem.gathered
        near = row * work.gathers * problem.gathered - far + (1 - cold) * stream
        return {
            "launch": float(work.launches),
            "stream": cold * stream,
            "near": near,
            "far": far,
            "step": work.steps,
            "turn": work.turns,
        }


@dataclass(frozen=True)
class Over(CudaPlan):
    """A plan over another, the rest of it: what runs where an operator refuses it."""

    rest: CudaPlan

    @property
    def arch(self) -> str:
        return self.rest.arch

    @property
    def otherwise(self) -> CudaPlan:
        return self.rest

    def legend(self) -> dict[str, str]:
        return super().legend() | self.rest.legend()


def kind_of(problem: CudaProblem) -> str:
    """What an operator is to the rules: "sum" of features over the edges of a row, "extreme" of maxima or minima, or
    "map" at each edge, whose edges may be shared out to lanes; "" where they may not.
    """
    return KINDS.get(problem.reduce, "")


def is_large(problem: CudaProblem) -> bool:
    """Whether these are sums on a graph that is large enough for its rows to be sorted."""
    return kind_of(problem) == "sum" and problem.nnz >= BUCKETS_PAY


def is_skewed(problem: CudaProblem, times: int = SKEWED) -> bool:
    """Whether the longest row is ``times`` as long as the mean, or longer."""
    return problem.longest >= times * max(int(problem.mean), 1)


def why_sorted(problem: CudaProblem) -> str:
    """Say that a large problem `is_skewed`, with its numbers."""
    return (
        f"There are {problem.nnz:,} edges, {BUCKETS_PAY:,} or more, and the longest row has {problem.longest:,} "
        f"non-zeros, {SKEWED} times the mean of {problem.mean:.1f} or more"
    )


def why_not_sorted(problem: CudaProblem) -> Iterator[str]:
    """Why sums go neither by buckets nor by chunks, where that is for their size or their rows."""
    if kind_of(problem) == "sum" and not is_large(problem):
        yield f"{problem.nnz:,} edges are fewer than {BUCKETS_PAY:,}, from which on buckets or chunks of rows pay."
    elif kind_of(problem) == "sum" and not is_skewed(problem):
        yield (
            f"The longest row has {problem.longest:,} non-zeros, less than {SKEWED} times the mean of "
            f"{problem.mean:.1f}: rows need neither buckets nor chunks."
        )


def kept_bytes(parts: float, features: int) -> float:
    """Bytes of the results of parts of rows, in float32, written and read again."""
    return 8.0 * parts * features


@dataclass(frozen=True)
class Shares:
    """How an axis is shared out: lanes, and neighbouring elements of each at a time."""

    lanes: int
    part: int


def shares(width: int, itemsize: int, most: int = WARP) -> Shares:
    """How a row of ``width`` elements of ``itemsize`` bytes is shared out among at most ``most`` lanes."""
    part = min(LONGEST_VECTOR, max(1, VECTOR_BYTES // itemsize))
    while part > 1 and width % part:
        part //= 2
    lanes = 1
    while lanes < most and lanes * part < width:
        lanes *= 2
    return Shares(lanes, part)


def passes(width: int, of: Shares) -> tuple[int, ...]:
    """Widths of the stretches of a row that are gone through one after the other."""
    most = of.lanes * MOST_ACCUMULATORS
    full, rest = divmod(width, most)
    return (most,) * full + ((rest,) if rest else ())
