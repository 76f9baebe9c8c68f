"""The schedule of an expression that nobody has scheduled: sums in registers, dot products in lanes, gathers ahead."""

from __future__ import annotations

from ...compiler import CpuSchedule, Program
from ...compiler.codegen import host_target
from ...compiler.schedules.cpu import Prefetch
from ...compiler.schedules.primitives.cpu.lanes import refuses
from ...compiler.transforms.dense_axes.lanes import reduce_in_lanes
from ...compiler.transforms.dense_axes.tile import tile_axis
from ...planner.cpu.prefetch_distance import distance
from ...planner.cpu.sddmm import BYTES_AHEAD, LONGEST_AHEAD
from ...planner.cpu.tiling import register_tiles, row_lanes, sum_lanes
from ...planner.machine import private_cache_bytes
from .declared import Written

TOGETHER = 4
"""Elements whose dot products are taken side by side."""

ITEM_BYTES = {"float64": 8, "int64": 8}


def is_far(size: int) -> bool:
    """Whether so many bytes exceed a core's own cache, so that gathers of them run ahead."""
    return size > private_cache_bytes()


def scheduled(written: Written, far: frozenset[str] = frozenset()) -> tuple[Program, CpuSchedule]:
    """The program with its sums cut for the registers of this processor, and the schedule.

    far: operands of which `is_far` holds.
    """
    program, target = written.program, host_target()
    ahead: list[Prefetch] = []
    lanes: list[tuple[str, int]] = []
    together: list[tuple[str, int]] = []
    for nest in written.nests:
        itemsize = ITEM_BYTES.get(nest.dtype, 4)
        gathered = [name for name in nest.gathered if written.buffers[name] in far]
        row = nest.width * itemsize
        if nest.dot:
            if (count := sum_lanes(nest.width, itemsize, target, 2)) > 1:
                program = reduce_in_lanes(program, nest.dot, count)
                together.append((nest.elements, TOGETHER))
            if row <= LONGEST_AHEAD:
                ahead += [Prefetch(nest.elements, name, 0, nest.width, distance(row, BYTES_AHEAD)) for name in gathered]
            continue
        tiles = register_tiles(nest.width, itemsize, target)
        if nest.deep:  # the sums of several levels are cut where they stand
            tiles = (tuple(width for tile in tiles for width in tile),)
        program = tile_axis(program, nest.feature, tiles, within=nest.rows)
        begin = 0
        for number, tile in enumerate(tiles):
            count, elements = sum(tile), f"{nest.elements}_tile_{number}"
            ahead += [Prefetch(elements, name, begin, count, distance(row, BYTES_AHEAD)) for name in gathered]
            begin += count
        elements = f"{nest.elements}_tile_0"
        if (count := row_lanes(nest.width, itemsize, target)) > 1 and not refuses(program, program.iteration(elements)):
            lanes.append((elements, count))
    return program, CpuSchedule(prefetch=tuple(ahead), lanes=tuple(lanes), together=tuple(together))
