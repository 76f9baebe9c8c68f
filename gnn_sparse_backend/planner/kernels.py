"""Kernels for the operators, by what is static in them. One compiled kernel serves every graph of its plan."""

from __future__ import annotations

import functools

from ..compiler.compile import compile_program
from ..compiler.kernels.kernel import Kernel
from ..compiler.programs.aggregate import AggregateSpec, aggregate
from ..compiler.programs.edge_map import EdgeMapSpec, edge_map
from ..compiler.programs.operands import ACCUMULATOR
from ..compiler.schedule.cpu import CpuSchedule, Prefetch
from ..compiler.target import host_target
from ..compiler.transform.lanes import reduce_in_lanes
from ..compiler.transform.tile import tile_axis
from .tiling import REGISTERS_PER_CHUNK, chunks_of_runs, register_tiles, sum_lanes

_BYTES = {"float64": 8, "float32": 4}


@functools.lru_cache(maxsize=None)
def aggregate_kernel(spec: AggregateSpec, parallel: bool, prefetch: int = 0) -> Kernel:
    """The kernel of an aggregation; serial where a parallel region would cost more than it saves.

    prefetch: how many non-zeros the gathers of whole rows of column operands look ahead, 0 for none.
    """
    target = host_target()
    # a choice is kept beside the value, in 64 bits
    itemsize = _BYTES[ACCUMULATOR[spec.dtype]] + 8 * len(spec.chosen)
    gathered = [f"X{number}" for number, x in enumerate(spec.operands)
                if x.at == "column" and x.width == spec.features] if prefetch else []
    if spec.staged:
        # one pass over the edges, so that what is staged is loaded once
        chunk = max(1, target.vector_bytes // itemsize) * REGISTERS_PER_CHUNK
        tiles = (chunks_of_runs(spec.features, _run(spec), chunk),)
        ahead = [Prefetch("edges", buffer, 0, spec.features, prefetch) for buffer in gathered]
    else:
        tiles = register_tiles(spec.features, itemsize, target)
        ahead = []
        first = 0
        for number, tile in enumerate(tiles):
            ahead += [Prefetch(f"edges_tile_{number}", buffer, first, sum(tile), prefetch) for buffer in gathered]
            first += sum(tile)
    schedule = CpuSchedule(parallel=parallel, prefetch=tuple(ahead))
    return compile_program(tile_axis(aggregate(spec), "K", tiles), schedule, target)


def _run(spec: AggregateSpec) -> int:
    """Neighbouring features along which no staged operand changes."""
    run = 1
    for extents in zip(reversed(spec.dims), *(reversed(spec.operands[number].dims) for number in spec.staged)):
        if any(own > 1 for own in extents[1:]):
            break
        run *= extents[0]
    return run


@functools.lru_cache(maxsize=None)
def edge_map_kernel(spec: EdgeMapSpec, parallel: bool) -> Kernel:
    """The kernel of an edge map."""
    target = host_target()
    itemsize = _BYTES[ACCUMULATOR[spec.dtype]]
    if spec.terms == 1:
        program = tile_axis(edge_map(spec), "H", register_tiles(spec.width, itemsize, target))
    else:
        program = reduce_in_lanes(edge_map(spec), "sum", sum_lanes(spec.terms, itemsize, target))
    return compile_program(program, CpuSchedule(parallel=parallel), target)
