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
from .tiling import REGISTERS_PER_CHUNK, chunks_of_runs, register_tiles, sum_lanes

_BYTES = {"float64": 8, "float32": 4}


@functools.lru_cache(maxsize=None)
def attention_kernel(spec: AttentionSpec, parallel: bool, prefetch: int = 0) -> Kernel:
    """The kernel of attention; serial where threads would cost more than they save.

    prefetch: how many non-zeros the gathers of whole rows of column operands look ahead, 0 for none.
    """
    target = host_target()
    itemsize = _BYTES[ACCUMULATOR[spec.dtype]]
    program = _sums_in_lanes(attention(spec), {"dot": spec.terms, "above": spec.scores}, itemsize, target)
    program = _cut(program, spec, itemsize, target)
    ahead = []
    for number, x in enumerate(spec.value.operands if prefetch else ()):
        if x.at == "column" and x.width == spec.features:
            ahead.append(Prefetch("edges", f"V{number}", 0, x.width, prefetch))
    for number, x in enumerate(spec.score.operands if prefetch else ()):
        if x.at == "column":
            ahead.append(Prefetch("edges", f"X{number}", 0, x.width, prefetch))
    return compile_program(program, CpuSchedule(parallel=parallel, prefetch=tuple(ahead)), target)


@functools.lru_cache(maxsize=None)
def attention_gradient_kernel(spec: AttentionSpec, parallel: bool) -> Kernel:
    """The kernel of what the gradients of attention need of every edge."""
    target = host_target()
    itemsize = _BYTES[ACCUMULATOR[spec.dtype]]
    width = spec.features // spec.scores
    terms = {"dot": spec.terms, "delta": width, "weight": width}
    program = _sums_in_lanes(attention_gradient(spec), terms, itemsize, target)
    return compile_program(_cut(program, spec, itemsize, target), CpuSchedule(parallel=parallel), target)


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
