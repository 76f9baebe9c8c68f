"""Kernels of relational gather-matmul-scatter for the CPU: the tiles of its programs, and their schedule."""

from __future__ import annotations

from dataclasses import replace

from ...compiler.cache.kernel import Kernel
from ...compiler.codegen import Target, host_target
from ...compiler.compile import compile_program
from ...compiler.language.program import Program
from ...compiler.language.types import ACCUMULATOR, BYTES
from ...compiler.own_schedules import chosen, kept_by_schedules
from ...compiler.schedules.cpu import cpu_schedule
from ...compiler.schedules.primitives.cpu.prefetch import prefetch_gather
from ...compiler.schedules.sequence import Schedule
from ...compiler.transforms.dense_axes.lanes import reduce_in_lanes
from ...compiler.transforms.dense_axes.tile import tile_axis
from ...planner.cpu.grouped import block_rows
from ...planner.cpu.products import GATHER_AHEAD
from ...planner.cpu.relational import is_tiled
from ...planner.cpu.tiling import product_rows, sum_lanes
from ..grouped.schedules_cpu import bf16_pair_dots, column_tile, vectors
from .programs.rgms import RgmsSpec, rgms_dot, rgms_gather, rgms_scatter, rgms_sum

# Vectors that a sum over the edges of a pair holds at a time.
PIECE_VECTORS = 8


def column_tile_of(out_features: int, dtype: str) -> int:
    """Columns of a tile of a matrix on this machine."""
    target = host_target()
    return column_tile(out_features, target.lanes(dtype), target)


@kept_by_schedules
def rgms_kernel(make: str, spec: RgmsSpec, parallel: bool, prefetch: int = GATHER_AHEAD) -> Kernel:
    """The kernel of a program of ``PROGRAMS``; the tiles are chosen here. prefetch: edges that gathers run ahead, 0 for
    none.
    """
    target = host_target()
    program, schedule = scheduled(make, spec, parallel, prefetch, target)
    return compile_program(program, chosen(spec, program, schedule), target)


def scheduled(make: str, spec: RgmsSpec, parallel: bool, prefetch: int, target: Target) -> tuple[Program, Schedule]:
    """The program with the tiles of this CPU, and its schedule."""
    lanes = target.lanes(spec.dtype)
    tile = column_tile(spec.out_features, lanes, target)
    tiled = spec.bf16_pairs or is_tiled(spec.in_features, spec.out_features, spec.dtype)
    # rows of a panel, which ends anywhere, or those of a matrix
    rows = block_rows(spec.in_features, target) if make == "sum" else product_rows(target)
    spec = replace(spec, tile=tile, rows=rows, piece=PIECE_VECTORS * lanes, tiled=tiled)
    build, (iteration, buffer, width) = PROGRAMS[make]
    program = build(spec)
    if make == "dot":
        program = reduce_in_lanes(program, "dot", sum_lanes(spec.wide_out, BYTES[ACCUMULATOR[spec.dtype]], target))
    for axis in program.axes:
        if axis.name in _COLUMNS:
            program = tile_axis(
                program, axis.name, (vectors(axis.static_length, lanes, spec.bf16_pairs and axis.name in "KL"),)
            )
    # the first pass over the edges of a pair fetches whole rows for edges further on, of whatever pair
    ahead = (prefetch_gather(iteration, buffer, 0, getattr(spec, width), prefetch),) if prefetch else ()
    return program, cpu_schedule(*bf16_pair_dots(program), ahead=ahead, parallel=parallel)


PROGRAMS = {
    "gather": (rgms_gather, ("edges_tile_0", "X", "wide_in")),
    "scatter": (rgms_scatter, ("edges", "Y", "wide_out")),
    "sum": (rgms_sum, ("edges_tile_0", "X", "wide_in")),
    "dot": (rgms_dot, ("edges", "X", "wide_out")),
}
"""What makes each program, and which of its iterations fetches rows of which buffer, of what width."""

# axes of the columns of tiles, in both programs
_COLUMNS = ("S", "U", "K", "L", "O", "E")
