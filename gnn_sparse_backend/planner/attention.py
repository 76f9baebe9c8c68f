"""Kernels of attention and of the softmax over edges, by what is static in them."""

from __future__ import annotations

import functools

from ..compiler.compile import compile_program
from ..compiler.coordinate.program import Program
from ..compiler.kernels.kernel import Kernel
from ..compiler.programs.attention import AttentionSpec, attention, attention_gradient
from ..compiler.programs.edge_softmax import EdgeSoftmaxSpec, edge_softmax, edge_softmax_gradient
from ..compiler.programs.operands import ACCUMULATOR
from ..compiler.schedule.cpu import CpuSchedule, Prefetch
from ..compiler.target import Target, host_target
from ..compiler.transform.lanes import reduce_in_lanes
from ..compiler.transform.tile import tile_axis
from .spmm import SpmmPlan, group_count
from .tiling import REGISTERS_PER_CHUNK, chunks_of_runs, register_tiles, sum_lanes

_BYTES = {"float64": 8, "float32": 4}
_STORED = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

# Scores, and the branch on them, wait for gathers: those run ahead as soon as they miss the first caches.
NEAR = 1 << 18
# Bytes of gathered rows on their way at once, and edges at most.
IN_FLIGHT = 8192
FURTHEST = 16


def plan_attention(rows: int, cols: int, nnz: int, spec: AttentionSpec, threads: int) -> SpmmPlan:
    """How an attention of (rows, cols) with nnz edges is shared out, and how many edges its gathers run ahead."""
    row = sum(x.width * _STORED[x.dtype] for x in spec.score.operands + spec.value.operands if x.at == "column")
    ahead = max(2, min(FURTHEST, IN_FLIGHT // row)) if row and cols * row > NEAR else 0
    return SpmmPlan(group_count(nnz, rows, spec.features + spec.scores * spec.terms, threads), ahead)


@functools.lru_cache(maxsize=None)
def attention_kernel(spec: AttentionSpec, parallel: bool, prefetch: int = 0) -> Kernel:
    """The kernel of attention; serial where threads would cost more than they save.

    prefetch: how many edges the gathers of column operands look ahead, 0 for none.
    """
    target = host_target()
    itemsize = _BYTES[ACCUMULATOR[spec.dtype]]
    program = _sums_in_lanes(attention(spec), {"dot": spec.terms, "above": spec.scores}, itemsize, target)
    program = _cut(program, spec, itemsize, target)
    return compile_program(program, CpuSchedule(parallel=parallel, prefetch=_ahead(spec, prefetch)), target)


@functools.lru_cache(maxsize=None)
def attention_gradient_kernel(spec: AttentionSpec, parallel: bool, prefetch: int = 0) -> Kernel:
    """The kernel of what the gradients of attention need of every edge."""
    target = host_target()
    itemsize = _BYTES[ACCUMULATOR[spec.dtype]]
    width = spec.features // spec.scores
    terms = {"dot": spec.terms, "delta": width, "weight": width}
    program = _sums_in_lanes(attention_gradient(spec), terms, itemsize, target)
    schedule = CpuSchedule(parallel=parallel, prefetch=_ahead(spec, prefetch))
    return compile_program(_cut(program, spec, itemsize, target), schedule, target)


def _ahead(spec: AttentionSpec, distance: int) -> tuple[Prefetch, ...]:
    """The gathers of all column operands, so many edges ahead; none for 0."""
    named = [(f"{letter}{number}", x) for letter, what in (("X", spec.score), ("V", spec.value))
             for number, x in enumerate(what.operands)]
    return tuple(Prefetch("edges", name, 0, x.width, distance) for name, x in named if x.at == "column" and distance)


def _sums_in_lanes(program: Program, terms: dict[str, int], itemsize: int, target: Target) -> Program:
    for name, count in terms.items():
        if count > 1:
            program = reduce_in_lanes(program, name, sum_lanes(count, itemsize, target))
    return program


def _cut(program: Program, spec: AttentionSpec, itemsize: int, target: Target) -> Program:
    """Features and heads in chunks, all of them in one pass over the edges."""
    chunk = max(1, target.vector_bytes // itemsize) * REGISTERS_PER_CHUNK
    inner = 1
    for extent, own in zip(reversed(spec.value.dims), reversed(spec.heads)):
        if own > 1:
            break
        inner *= extent
    program = tile_axis(program, "K", (chunks_of_runs(spec.features, inner, chunk),))
    if spec.scores < spec.features:
        program = tile_axis(program, "H", (chunks_of_runs(spec.scores, 1, chunk),))
    return program


@functools.lru_cache(maxsize=None)
def edge_softmax_kernel(spec: EdgeSoftmaxSpec, gradient: bool, parallel: bool) -> Kernel:
    """The kernel of a softmax over edges, or of its gradient; serial where threads would cost more than they save."""
    target = host_target()
    program = edge_softmax_gradient(spec) if gradient else edge_softmax(spec)
    tiles = register_tiles(spec.width, _BYTES[ACCUMULATOR[spec.dtype]], target)
    return compile_program(tile_axis(program, "K", tiles), CpuSchedule(parallel=parallel), target)
