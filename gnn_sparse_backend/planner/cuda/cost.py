"""What a plan costs on a GPU: counts of what it does, times what one of each takes (`cost` has the like for a CPU).

Bytes gathered from memory and from the second-level cache, in whole sectors; launches; lanes, the idle ones too; and
the longest task, which the others wait for. The terms overlap nothing. **The model has not been compared with a GPU
yet**, so it chooses nothing: it orders the candidates of `gsb.explain` and says what they differ in.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

from ..cost import Cost, compulsory_bytes, touched
from ..problem import CudaProblem, operands_of_kind
from .gpu import Gpu
from .plan import HELD, WARP, CudaPlan, passes, shares

# Bytes that memory gives at a time, and rows of a block on Tensor Cores.
SECTOR, _ROWS = 32, 16
# Instructions for an edge in a lane, and lanes of a multiprocessor.
_INSTRUCTIONS, _LANES = 6, 128
# How much cheaper a byte is from the second-level cache than from memory.
NEARER = 2.5
# Gathers of a team that are under way at once where edges are loaded in stretches, or of known number; and shuffles of
# a scan.
_UNDER_WAY, _SHUFFLES = 4, 5
_LAUNCH, _TURN = 3e-6, 6e-7

MEANINGS: Mapping[str, str] = {
    "launch": "a kernel starts",
    "stream": "a byte is read or written in order",
    "near": "a byte of a gathered row, from the second-level cache",
    "far": "a byte of a gathered row, from memory",
    "step": "what a lane does for an edge",
    "turn": "an edge of the longest task, which waits for its row",
}
"""What one of each unit is, for people."""
UNITS = tuple(MEANINGS)


@functools.cache
def default_units(gpu: Gpu) -> dict[str, float]:
    """Seconds for one of each, from what is known of the GPU; launch and turn are guesses."""
    byte = 1 / gpu.bandwidth
    step = _INSTRUCTIONS / (gpu.multiprocessors * _LANES * gpu.clock)
    return dict(zip(UNITS, (_LAUNCH, byte, byte / NEARER, byte, step, _TURN)))


def predict(problem: CudaProblem, plan: CudaPlan, units: Mapping[str, float]) -> Cost:
    """The cost of ``plan``; ``units`` as of `default_units`."""
    return Cost({name: count * units[name] for name, count in counts(problem, plan).items() if count})


def counts(problem: CudaProblem, plan: CudaPlan) -> dict[str, float]:
    """How many of each unit there are; steps and bytes of the whole GPU, turns of its longest task."""
    reduce, gathered, at_edges = operands_of_kind(problem.kind)
    work = _work(problem, plan, reduce)
    written = problem.nnz * problem.itemsize if reduce == "map" else 0
    stream = (
        4.0 * (problem.rows + 1 + problem.nnz)
        + at_edges * problem.nnz * problem.itemsize
        + problem.rows * problem.row_bytes
        + written
        + work.stream
    )
    cold = min(1.0, compulsory_bytes(problem) / problem.cache)
    row = -(-problem.row_bytes // SECTOR) * SECTOR
    first = min(touched(problem), work.gathers)
    missing = max(0.0, 1 - HELD * problem.cache * plan.partitions / problem.table_bytes) if problem.table_bytes else 0.0
    far = cold * row * (first + (work.gathers - first) * missing) * gathered
    near = row * work.gathers * gathered - far + (1 - cold) * stream
    return {
        "launch": float(work.launches),
        "stream": cold * stream,
        "near": near,
        "far": far,
        "step": work.steps,
        "turn": work.turns,
    }


class _Work(NamedTuple):
    """What the plans differ in. launches: one after the other. gathers: rows of each dense operand. steps: of lanes.
    turns: of the longest task. stream: bytes in order beyond those of every plan.
    """

    launches: int
    gathers: float
    steps: float
    turns: float
    stream: float


def _work(problem: CudaProblem, plan: CudaPlan, reduce: str) -> _Work:
    rows, nnz, features = max(problem.rows, 1), problem.nnz, problem.features
    mean = nnz / rows
    longest = max(problem.longest, mean)
    if plan.blocks and problem.slots:
        gathers = problem.slots / _ROWS
        return _Work(1, gathers, gathers * features, gathers / rows, problem.slots * (problem.itemsize + 1.0))
    if plan.segments:
        pieces = rows + nnz / WARP
        return _Work(2, nnz, nnz * features * (1 + _SHUFFLES), 2.0, _kept(pieces, features))
    launches, stream, edges, under_way = 1, 0.0, float(nnz), _UNDER_WAY if plan.cached else 1
    if plan.longest_part and reduce != "map":
        apart = longest > plan.longest_part or plan.partitions > 1 or not plan.buckets
        launches, stream = (
            2,
            _kept(min(nnz, rows * plan.partitions) + nnz / plan.longest_part, features) if apart else 0.0,
        )
    if plan.longest_part:
        longest = min(longest, plan.longest_part)
    if plan.buckets:
        edges *= 4 / 3  # slots of a bucket of rows of evenly spread lengths
        stream += 4 * (edges - nnz)
        under_way = _UNDER_WAY
    if plan.lanes:
        turns = -(-longest // plan.lanes)
        return _Work(launches, nnz, rows * -(-mean // plan.lanes) * plan.lanes * features, turns, stream)
    of = shares(features, problem.itemsize, plan.team or WARP)
    loads = -(-features // (of.lanes * of.part)) + (1 / of.lanes if plan.cached else 1)
    return _Work(launches, nnz, edges * of.lanes * loads, longest * len(passes(features, of)) / under_way, stream)


def _kept(parts: float, features: int) -> float:
    """Bytes of the results of parts of rows, in float32, written and read again."""
    return 8.0 * parts * features
