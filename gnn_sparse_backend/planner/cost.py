"""What a plan costs: counts of what it does (`Plan.counts`), times what one of each takes on this machine.

The model is a sum and overlaps nothing, so that its constants are found by linear least squares (``calibrate``) and
every term can be read. Misses follow the independent-reference model: a gather hits a cache with the chance that the
cache holds of what is gathered nearby (``Problem.reach``), but for the first touch of each row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ..compiler.cache.bounded import kept
from ..compiler.language.reduction import chooses
from ..frozen import dataclass
from . import machine
from .machine import last_level_cache_bytes, private_cache_bytes
from .plan import Plan
from .problem import Problem, operands_of_kind

LINE = 64
# Vector registers of accumulators of one pass over the edges of a row, and their bytes with AVX2.
_VECTOR_BYTES, _TILE_VECTORS = 32, 8
# Additions in flight that keep the adders busy: four cycles each, two at a time.
_CHAINS = 8
# Share of the last-level cache that a call can count on finding as it left it, and of any cache that rows of the dense
# operand can count on: indices, results and what is fetched ahead pass through it too, and others share the last level.
_HELD, _HELD_BY_ROWS = 0.25, 0.5

# Seconds for one of each of ``MEANINGS``, where this machine has not been measured (two cores of an AMD EPYC of 2021,
# between two runs of ``calibrate``).
DEFAULT_UNITS: Mapping[str, float] = {
    "start": 5e-6,
    "group": 4e-7,
    "row": 1.4e-8,
    "edge": 1e-10,
    "vector": 4e-10,
    "chain": 4.2e-10,
    "fold": 4e-10,
    "scatter": 2.4e-9,
    "near": 1.3e-9,
    "near_ahead": 1.3e-9,
    "far": 1.1e-8,
    "far_ahead": 9e-9,
    "next": 5.5e-9,
    "next_ahead": 4.2e-9,
    "ahead": 4.2e-10,
    "stream": 2.2e-11,
}
# A parallel region whose threads sleep, where a spinning one begins in "start": the system wakes them.
SLEEPING_START = 4e-5
_OF_ROWS = {
    "near": "a cache line of a row from the last-level cache",
    "far": "the first line of a row from memory",
    "next": "a further line of such a row",
}
MEANINGS: Mapping[str, str] = {
    "start": "a parallel region begins",
    "group": "a row group is handed to a thread",
    "row": "a row, and the loop around it",
    "edge": "a non-zero, and its index",
    "vector": "a vector of features is added",
    "chain": "an addition waits for the one before",
    "fold": "a lane is added at the end of a row",
    "scatter": "an addition in memory, to the row of a non-zero",
    **_OF_ROWS,
    **{f"{name}_ahead": f"{words}, fetched ahead" for name, words in _OF_ROWS.items()},
    "ahead": "an instruction that fetches a line ahead",
    "stream": "a byte is read or written in order",
}
"""What one of each unit is, for people."""
_GATHERS = ("near", "far", "next", "near_ahead", "far_ahead", "next_ahead")


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of a plan. terms: its parts, by the names of ``DEFAULT_UNITS``, in seconds."""

    terms: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return sum(self.terms.values())

    def largest(self, count: int = 3) -> tuple[tuple[str, float], ...]:
        """The largest terms, in seconds."""
        return tuple(sorted(self.terms.items(), key=lambda term: -term[1])[:count])


def predict(problem: Problem, plan: Plan, units: Mapping[str, float]) -> Cost:
    """The cost of ``plan``; ``units`` as ``DEFAULT_UNITS``, or of a GPU as `cuda.cost.default_units`."""
    return Cost({name: count * units[name] for name, count in plan.counts(problem).items() if count})


def default_units() -> Mapping[str, float]:
    """``DEFAULT_UNITS``, with the start that goes with how threads wait in this process."""
    return {**DEFAULT_UNITS, "start": SLEEPING_START} if machine.threads_sleep() else DEFAULT_UNITS


def provenance(architecture: str) -> str:
    """Where `default_units` come from, for people. architecture: of this machine's processors."""
    if architecture == "x86_64":
        return "times of an AMD EPYC of 2021"
    return f"predictions from an AMD EPYC of 2021: no {architecture} processor was measured"


def predicted_seconds(problem: Problem, plan: Plan, units: Mapping[str, float]) -> float:
    """``predict(problem, plan, units).seconds``."""
    return sum(count * units[name] for name, count in plan.counts(problem).items())


def counts_of_rows(
    problem: Problem, groups: int, fetched: bool, in_lanes: bool = False, partitions: int = 1
) -> dict[str, float]:
    """How many of each unit the busiest thread meets that goes over rows. fetched: rows are, ahead."""
    c = _common(problem)
    share = 1 / min(problem.threads, groups)
    near, far = c.misses if partitions == 1 else _misses(problem, partitions)
    ahead = "_ahead" if fetched else ""
    gathers = dict.fromkeys(_GATHERS, 0.0)
    gathers[f"near{ahead}"] = near * share * c.lines
    gathers[f"far{ahead}"] = far * share
    gathers[f"next{ahead}"] = far * share * max(0, c.lines - 1)
    return {
        "start": float(partitions) if groups > 1 else 0.0,
        "group": groups * partitions * share,
        "row": problem.rows * share * c.passes * partitions,
        "edge": problem.nnz * share * c.passes,
        "vector": problem.nnz * share * c.vectors * c.operands,
        "chain": problem.nnz * share * c.waiting / (c.lanes if in_lanes else 1),
        "scatter": 0.0,
        "fold": problem.rows * share * (c.lanes - 1) * c.vectors if in_lanes else 0.0,
        **gathers,
        "ahead": problem.nnz * share * c.lines if fetched else 0.0,
        "stream": (c.streamed + 3 * (partitions - 1) * problem.rows * problem.row_bytes) * share * c.uncached,
    }


def compulsory_bytes(problem: Problem) -> float:
    """Bytes that any plan moves: the structure, every row that some edge needs once, edge operands, the result."""
    reduce, gathered, at_edges = operands_of_kind(problem.kind)
    structure = 4.0 * (problem.rows + 1 + problem.nnz)
    # an edge map reads a row where an aggregation writes one, and writes a value for each edge at least
    values = (gathered * touched(problem) + problem.rows) * problem.row_bytes
    written = problem.nnz * problem.itemsize if reduce == "map" else 0
    return structure + values + at_edges * problem.nnz * problem.itemsize + written


class _Common(NamedTuple):
    """What all plans of a problem share.

    lines: cache lines of a gathered row. vectors: of an edge's features. passes: over the edges of a row. operands:
    instructions for a vector, an addition being 1. waiting: share of an addition's latency that nothing hides.
    lanes: of a reduction in lanes. misses: gathers (from the last level, from memory) of one partition. streamed: bytes
    in order. uncached: what one of them costs, beyond the last-level cache 1.
    """

    lines: int
    vectors: int
    passes: int
    operands: float
    waiting: float
    lanes: int
    misses: tuple[float, float]
    streamed: float
    uncached: float


@kept
def _common(problem: Problem) -> _Common:
    reduce, gathered, at_edges = operands_of_kind(problem.kind)
    row = problem.row_bytes
    # half types are summed in float32
    vectors = -(-problem.features * max(problem.itemsize, 4) // _VECTOR_BYTES)
    passes = -(-vectors // _TILE_VECTORS)
    operands = 1 + 0.5 * (max(0, gathered - 1) + at_edges) + (1.0 if chooses(reduce) else 0.0)
    # a result is read before it is written
    streamed = problem.nnz * (4.0 * passes + at_edges * problem.itemsize) + problem.rows * (4.0 + 2 * row)
    return _Common(
        -(-row // LINE) if gathered else 0,
        vectors,
        passes,
        operands,
        max(0.0, 1 - vectors / _CHAINS),
        max(1, _CHAINS // vectors),
        _misses(problem, 1),
        streamed,
        0.2 + 0.8 * _outside(problem),
    )


def touched(problem: Problem) -> float:
    """Distinct columns, were the non-zeros drawn independently."""
    return problem.cols * -math.expm1(-problem.nnz / problem.cols) if problem.cols else 0.0


def _outside(problem: Problem) -> float:
    """How much of what a call touches is not in the last-level cache when it begins: 0 to 1."""
    return min(1.0, max(0.0, (compulsory_bytes(problem) / last_level_cache_bytes() - _HELD) / (1 - _HELD)))


def _misses(problem: Problem, partitions: int) -> tuple[float, float]:
    """(gathers from the last-level cache, gathers from memory)."""
    _, gathered, _ = operands_of_kind(problem.kind)
    nearby = problem.nearby_bytes / partitions
    if not gathered or not nearby:
        return 0.0, 0.0
    first = touched(problem)
    again = max(0.0, problem.nnz - first)
    far = _outside(problem) * (first + again * max(0.0, 1 - _HELD_BY_ROWS * last_level_cache_bytes() / nearby))
    private, held = 0.0, _HELD_BY_ROWS * private_cache_bytes()
    if problem.table_bytes > held:
        private = first + again * max(0.0, 1 - held / nearby)
    return max(0.0, private - far) * gathered, far * gathered
