"""Plans for a GPU: the threads that work on a row together, and the features of each.

Rules, none of which has been measured on a GPU yet:

- A team of lanes of one warp works on a row. The hardware takes rows as it gets through them, so that rows need no
  groups of equal cost; a row that is a task of its own is cut into parts (`longest_part`), whose results a second pass
  adds up.
- Features go to lanes in vectors of 16 bytes (8 of 16-bit types) where the width divides (vector loads; Huang et al.,
  section 4.2). Teams are as many lanes as that takes, so that a warp has several narrow rows under way (GE-SpMM's
  coarsening, Huang et al., SC 2020, turned round), and 32 at most: of a wider row each lane has several vectors.
- Rows of few features and enough non-zeros are summed, or their maxima found, by lanes that walk along the non-zeros
  side by side (parallel reduction, ibid., section 3.1): a whole warp, or an eighth of one where rows are shorter than
  that.
- Where the longest row of a large graph is many times the mean, and the mean row does not fill a warp, such sums go by
  chunks of 32 consecutive non-zeros, a warp each, a lane for each non-zero whatever its row, added up by row in a
  segmented scan (non-zero-balanced parallel reduction, ibid., sections 3.1 and 3.2): most rows are then far shorter
  than the mean, and would leave most lanes of their team idle. A second pass adds up what chunks cut, 8 lanes a row,
  since a row of 256 non-zeros has 8 or 9 pieces. Rows that fill a warp go as above: cutting them would gain nothing for
  its second pass.
- Sums and means of wider rows over the edges of a large graph whose longest row is many times the mean go by hyb(c, k)
  (SparseTIR, section 4.2.1): rows in buckets of ELL rows of 1 to 512 slots, longer ones in parts, all buckets in one
  launch, the widest first. A team takes one row of the widest bucket, two of the next, and so on, so that all blocks
  have equally many slots and finish together, and loops of known length are unrolled; elsewhere a block waits for the
  longest of its rows. The widest has fewer slots where so few teams would not keep a GPU busy (`widest_bucket`). The
  buckets take up to 24 bytes an edge and a sort
  to make, once: that is for graphs that stay, and a million edges are no mini-batch.
- Where the dense operand is larger than what the last-level cache holds of it, buckets are made of column partitions,
one
  after the other: as many as save most bytes of memory, counted (`column_partitions`), two fifths at least.
- What an edge takes to know (its column, number, weight) is loaded by a lane for the whole team, a stretch of edges at
  a time (coalesced row caching: GE-SpMM, section 4.1), where rows fill a stretch on average. All lanes loading the same
  index is one sector of memory for each edge and a wait before each gather; a stretch is loaded in one go, and its
  gathers have their addresses at hand. In shorter rows most lanes of the only stretch would load nothing new.
- Messages of few features go to lanes edge by edge: what is stored of neighbouring edges lies side by side.
- Sums over a width (SDDMM, scores of attention) are shared out the same way and added up by shuffles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..plan import Plan

WARP = 32
# Threads of a block: enough for full occupancy at 64 registers each, few enough that a heavy row holds up few others.
BLOCK = 128
# Bytes of a vector load, and elements of one at most: TVM has no longer vectors of float32.
VECTOR_BYTES = 16
LONGEST_VECTOR = 4
# Non-zeros of a graph that is worth putting into buckets or chunks, and how many times the mean its longest row is.
BUCKETS_PAY = 1 << 20
SKEWED = 8
# Features that a lane accumulates in one pass over the edges at most: what leaves room for occupancy.
MOST_ACCUMULATORS = 32
# Threads that a launch of buckets has at least, as far as it may: with four gathers of 16 bytes under way in each, four
# megabytes, about what memory needs to be busy (5 TB a second, at 0.8 microseconds).
BUSY = 1 << 16
# Share of the last-level cache that rows of the dense operand can count on; column partitions at most, and the part of
# the bytes of memory that they have to leave at most.
HELD = 0.5
MOST_PARTITIONS = 64
LEFT = 0.6
# A row of more than ``LONG_ROW`` non-zeros is cut into parts of ``PART``, each a task of its own.
LONG_ROW = 2048
PART = 512
# Widest row whose sums go over non-zeros in lanes, and the mean non-zeros of a row from which that pays.
NARROW = 4
LANES_PAY = 8
# Narrowest team that loads edges in stretches: fewer lanes would hardly have fewer loads.
STRETCH = 8
# Widest message of an edge that one lane computes by itself.
FEW = 16
# Features of an operator of each kind that go over non-zeros in lanes, at most.
IN_LANES = {"sum": NARROW, "extreme": NARROW, "map": FEW}


@dataclass(frozen=True)
class CudaPlan(Plan):
    """A plan whose kernels are for a GPU.

    Every row is a team's work, so groups do not depend on the graph, and graphs of all sizes share their plans and
    kernels.
    arch: its compute architecture, "sm_90". lanes: that share the non-zeros of a row, 0 where they share its features.
    team: lanes that share the features of a row at most, 0 for a warp: with fewer, each has several vectors
    (coarsening).
    cached: the lanes that share features load edges for each other.
    segments: sums go by chunks of 32 non-zeros, whatever rows they belong to; the rest of the plan is that of the
        second pass, over the pieces of each row.
    buckets: rows of at most ``longest_part`` non-zeros, a power of two, and the parts of longer ones lie in buckets of
    ELL rows of
        equal length: hyb(c, k), with c in ``partitions`` and 2**k in ``longest_part``.
    blocks: sums go by blocks on Tensor Cores where the graph fills them and their type may be cut (`blocks`); the
        rest of the plan is for where it does not.
    """

    groups: int = 1
    balance: str = "teams"
    arch: str = ""
    lanes: int = 0
    team: int = 0
    cached: bool = False
    buckets: bool = False
    segments: bool = False
    blocks: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buckets and (self.longest_part < 1 or self.longest_part & (self.longest_part - 1)):
            raise ValueError(f"the widest bucket has a power of two of slots, not longest_part = {self.longest_part}")
        for lanes in (self.lanes, self.team):
            if lanes & (lanes - 1) or lanes > WARP:
                raise ValueError(f"a team has 1, 2, 4, 8, 16 or {WARP} lanes, not {lanes}")

    __hash__ = Plan.__hash__  # a dataclass would make its own


def plan_cuda(arch: str, rows: int = 0, nnz: int = 0, features: int = 0, longest: int = 0, kind: str = "") -> CudaPlan:
    """The plan of an operator on a graph of ``rows`` rows, each of which is a team's work.

    longest: non-zeros of the longest row; 0 where rows are not to be cut, or are known to be short. kind: "sum" of
    ``features`` over the edges of a row, "extreme" of ``features`` maxima or minima, or "map" of ``features`` at each
    edge, whose edges may be shared out to lanes; "" where they may not.
    """
    mean = nnz // max(rows, 1)
    longest_part = part_length(longest)
    skewed = kind == "sum" and nnz >= BUCKETS_PAY and longest >= SKEWED * max(mean, 1)
    if skewed and 1 <= features <= NARROW and mean < WARP:
        return CudaPlan(
            reduction="simd", longest_part=part_length(longest // WARP), arch=arch, lanes=LANES_PAY, segments=True
        )
    if features < 1 or features > IN_LANES.get(kind, 0) or mean < LANES_PAY:
        if skewed and features > NARROW:
            return CudaPlan(longest_part=widest_bucket(nnz, features), arch=arch, cached=True, buckets=True)
        return CudaPlan(longest_part=longest_part, arch=arch, cached=mean >= WARP)
    reduction = "sequential" if kind == "map" else "simd"
    return CudaPlan(
        reduction=reduction, longest_part=longest_part, arch=arch, lanes=WARP if mean >= WARP else LANES_PAY
    )


def plan_softmax(arch: str, rows: int, nnz: int, features: int, longest: int) -> CudaPlan:
    """The plan of a softmax of ``features`` features over the edges of each row: that of maxima, but that up to ``FEW``
    features go over edges in lanes too where rows are long enough for their shuffles, ten for a feature, not to
    matter."""
    plan = plan_cuda(arch, rows, nnz, features, longest, "extreme")
    if not plan.lanes and features <= FEW and nnz >= 4 * WARP * max(rows, 1):
        return replace(plan, reduction="simd", lanes=WARP)
    return plan


def part_length(longest: int) -> int:
    """How long the parts of rows are, where the longest has ``longest`` non-zeros; 0 where no row is worth cutting."""
    return PART if longest > LONG_ROW else 0


def widest_bucket(nnz: int, features: int) -> int:
    """Slots of the widest bucket, a power of two: 512, or fewer where teams for wider buckets would have fewer than
    ``BUSY`` threads together; 32 at least, because each part of a longer row is another result to add up."""
    slots = max(WARP, nnz * shares(features, 4).lanes // BUSY)
    return min(PART, 1 << (slots.bit_length() - 1))


def column_partitions(rows: int, cols: int, nnz: int, row_bytes: int, result_bytes: int, cache: int) -> int:
    """Column partitions that read and write least in memory, by counting; 1 where no other leaves ``LEFT`` of its bytes
    or less.

    row_bytes: of a row of the dense operand. result_bytes: of the result of a part of a row. cache: of the last level.

    Gathers from a slice of the operand miss where the cache has no room for it; buckets of one width after the other
    meet each slice again. Non-zeros are taken to be spread evenly, so that a row has d = nnz / rows of them and
    c (1 - exp(-d / c)) parts in c partitions, each written and read again.
    """
    mean = nnz / max(rows, 1)
    buckets = len(bucket_widths(PART))

    def moved(count: int) -> float:
        missing = max(0.0, 1 - HELD * cache * count / max(cols * row_bytes, 1))
        parts = rows * count * -math.expm1(-mean / count) if count > 1 else 0.0
        return (nnz * missing + min(nnz, buckets * cols)) * row_bytes + 2 * parts * result_bytes

    counts = [1 << exponent for exponent in range(MOST_PARTITIONS.bit_length())]
    best = min(counts, key=moved)
    return best if moved(best) <= LEFT * moved(1) else 1


def bucket_widths(widest: int) -> tuple[int, ...]:
    """Slots of the rows of each bucket, in the order of the launch: heavy rows first, so that none begins when the rest
    is done.
    """
    return tuple(1 << exponent for exponent in reversed(range(widest.bit_length())))


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


def stretches(plan: CudaPlan, lanes: int, *iterations: str) -> tuple[str, ...]:
    """The iterations over edges that a team of ``lanes`` lanes goes through in stretches: all or none."""
    return iterations if plan.cached and lanes >= STRETCH else ()
