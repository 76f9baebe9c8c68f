"""The schedule of an expression that nobody has scheduled: sums in registers, dot products in lanes, gathers ahead."""

from __future__ import annotations

from collections.abc import Mapping

from ...compiler import Program
from ...compiler.codegen import host_target
from ...compiler.language.types import BYTES
from ...compiler.schedules.cpu import cpu_schedule
from ...compiler.schedules.primitives.cpu.lanes import fold_in_lanes, refuses
from ...compiler.schedules.primitives.cpu.prefetch import prefetch_gather
from ...compiler.schedules.primitives.cpu.unroll_and_jam import unroll_and_jam
from ...compiler.schedules.sequence import Schedule, Step
from ...compiler.transforms.dense_axes.lanes import reduce_in_lanes
from ...compiler.transforms.dense_axes.tile import tile_axis
from ...frozen import dataclass
from ...planner.cpu.prefetch_distance import distance
from ...planner.cpu.spmm import LONGEST_AHEAD, MAP_BYTES_AHEAD
from ...planner.cpu.tiling import register_tiles, row_lanes, sum_lanes
from ...planner.machine import private_cache_bytes
from ..storage.stored import Stored
from .declared import Written

SHORT = 16
"""Elements of a row, on the average, from which a sum of several features goes in lanes."""
SINGLE = 2
"""Elements of a row, on the average, from which a sum of one feature does: below, lanes are for nothing."""
ONE_FEATURE = 4
"""Lanes of a sum of one feature: as many as hide the latency of an addition. With more, more of the last vector of each
row is for nothing."""
TOGETHER = 4
"""Elements whose dot products are taken side by side."""


@dataclass(frozen=True)
class Traits:
    """What is known of the operands that a kernel is compiled for, and makes it fast for others like them.

    Attributes:
        far: operands beyond a core's own cache, whose gathers run ahead.
        short: operands whose innermost sums have few elements, too few to fill lanes of several features.
        single: operands whose innermost sums mostly have one element, so that there is nothing for lanes at all.
    """

    far: frozenset[str] = frozenset()
    short: frozenset[str] = frozenset()
    single: frozenset[str] = frozenset()

    @classmethod
    def of(cls, operands: Mapping[str, Stored]) -> Traits:
        far = frozenset(name for name, each in operands.items() if each.values.nbytes > private_cache_bytes())
        stored = {name: [level.positions for level in each.structure.levels] for name, each in operands.items()}
        sparse = {name: found for name, found in stored.items() if not operands[name].format.is_dense}

        def with_fewer(count: int) -> frozenset[str]:
            return frozenset(
                name for name, found in sparse.items() if len(found) > 1 and found[-1] < count * max(found[-2], 1)
            )

        return cls(far, with_fewer(SHORT), with_fewer(SINGLE))


NO_TRAITS = Traits()


def scheduled(written: Written, traits: Traits = NO_TRAITS) -> tuple[Program, Schedule]:
    """The program with its sums cut for the registers of this processor, and the schedule."""
    program, target = written.program, host_target()
    ahead: list[Step] = []
    lanes: list[Step] = []
    together: list[Step] = []
    for nest in written.nests:
        itemsize = BYTES[nest.dtype]
        gathered = [name for name in nest.gathered if written.buffers[name] in traits.far]
        row = nest.width * itemsize
        if nest.dot:
            if nest.adds and (count := sum_lanes(nest.width, itemsize, target, 2)) > 1:
                program = reduce_in_lanes(program, nest.dot, count)
                together.append(unroll_and_jam(nest.elements, TOGETHER))
            if row <= LONGEST_AHEAD:
                ahead += [
                    prefetch_gather(nest.elements, name, 0, nest.width, distance(row, MAP_BYTES_AHEAD))
                    for name in gathered
                ]
            continue
        tiles = register_tiles(nest.width, itemsize, target)
        if nest.deep:  # the sums of several levels are cut where they stand
            tiles = (tuple(width for tile in tiles for width in tile),)
        program = tile_axis(program, nest.feature, tiles, within=nest.rows)
        begin = 0
        for number, tile in enumerate(tiles):
            count, elements = sum(tile), f"{nest.elements}_tile_{number}"
            ahead += [
                prefetch_gather(elements, name, begin, count, distance(row, MAP_BYTES_AHEAD)) for name in gathered
            ]
            begin += count
        elements = f"{nest.elements}_tile_0"
        too_few = traits.single if nest.width == 1 else traits.short
        filled = ONE_FEATURE if nest.width == 1 else row_lanes(nest.width, itemsize, target)
        count = 1 if nest.sparse in too_few else filled
        if count > 1 and not refuses(program, program.iteration(elements)):
            lanes.append(fold_in_lanes(elements, count))
    return program, cpu_schedule(*lanes, *together, ahead=tuple(ahead))
