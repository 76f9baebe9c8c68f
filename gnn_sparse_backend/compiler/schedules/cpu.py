"""The CPU schedule: one parallel loop over independent rows, vectors over static features."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...deferred import s_tir
from ..language.program import Program, walk_iterations
from ..lowering.nest import block_name, plan_nest
from ..position.function import PositionFunction
from .primitives.cpu import parallelize, vectorize
from .primitives.cpu.amx_tiles import amx_tiles
from .primitives.cpu.bf16_pair_dot import bf16_pair_dot
from .primitives.cpu.brief_exponentials import brief_exponentials
from .primitives.cpu.lanes import fold_in_lanes
from .primitives.cpu.pairs import interleave, transpose_pairs, transpose_words
from .primitives.cpu.prefetch import prefetch_gather
from .primitives.cpu.unroll_and_jam import jam
from .primitives.shared.local_memory import locals_on_stack
from .primitives.shared.whole import whole_or_part


@dataclass(frozen=True)
class Prefetch:
    """Prefetch, in `iteration`, `count` elements from `first` on of the `buffer` row needed `distance` elements on."""

    iteration: str
    buffer: str
    first: int
    count: int
    distance: int


@dataclass(frozen=True)
class CpuSchedule:
    """Rows on threads, features in vectors.

    Attributes:
        parallel: run the outermost loop of every iteration on the thread pool where its elements are independent.
        alone: iterations that one thread runs nevertheless: they take less time than waking the others.
        vectorize: a spatial iteration over one static dense axis runs as a vector loop.
        fuse: all iterations share one outermost loop (`loops.horizontal`).
        prefetch: gathers to run ahead of.
        lanes: (iteration, lanes): reductions over a run-time number of elements to be folded in that number of lanes.
        bf16_pair_dots: reductions that end in one over two terms, to be multiplied together
            (`primitives.cpu.bf16_pair_dot`).
        together: (iteration, count): ``count`` of its elements are visited at a time (`primitives.cpu.unroll_and_jam`).
        tiles: local buffers that stay in tile registers (`primitives.cpu.amx_tiles`).
        interleaved, transposed: iterations that put rows in pairs, and that transpose pairs (`primitives.cpu.pairs`).
        turned: iterations that transpose numbers of float32 (likewise).
        brief: iterations whose exponentials are rounded to bfloat16 (`primitives.cpu.brief_exponentials`).
        unrolled: iterations over one axis whose elements are written out, of which there are a fixed number at most.
    """

    parallel: bool = True
    vectorize: bool = True
    fuse: bool = False
    prefetch: tuple[Prefetch, ...] = ()
    lanes: tuple[tuple[str, int], ...] = ()
    bf16_pair_dots: tuple[str, ...] = ()
    together: tuple[tuple[str, int], ...] = ()
    tiles: tuple[str, ...] = ()
    interleaved: tuple[str, ...] = ()
    transposed: tuple[str, ...] = ()
    turned: tuple[str, ...] = ()
    brief: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    unrolled: tuple[str, ...] = ()

    def prepare(self, program: Program) -> Program:
        """What the schedule wants done in coordinate space: nothing."""
        return program

    def apply(self, stage2: PositionFunction) -> PositionFunction:
        if self.vectorize:
            for iteration in walk_iterations(stage2.program.iterations):
                if vectorize.refuses(iteration) is None and iteration.axes[0].static_length > 1:
                    stage2 = vectorize.vectorize_spatial(stage2, iteration)
        if self.parallel:
            for iteration in stage2.program.iterations:
                if iteration.name not in self.alone and parallelize.refuses(stage2, iteration) is None:
                    stage2 = parallelize.parallelize_spatial(stage2, iteration)
        for ahead in self.prefetch:
            iteration = stage2.program.iteration(ahead.iteration)
            stage2 = prefetch_gather(stage2, iteration, ahead.buffer, ahead.first, ahead.count, ahead.distance)
        # last: these part the loops above a block from the block
        stage2 = decompose_reductions(stage2)
        for name, lanes in self.lanes:
            stage2 = fold_in_lanes(stage2, stage2.program.iteration(name), lanes)
        for name in self.bf16_pair_dots:
            stage2 = bf16_pair_dot(stage2, stage2.program.iteration(name))
        for name, count in self.together:
            stage2 = jam(stage2, stage2.program.iteration(name), count)
        for name in self.interleaved:
            stage2 = interleave(stage2, stage2.program.iteration(name))
        for name in self.transposed:
            stage2 = transpose_pairs(stage2, stage2.program.iteration(name))
        for name in self.turned:
            stage2 = transpose_words(stage2, stage2.program.iteration(name))
        for name in self.brief:
            stage2 = brief_exponentials(stage2, stage2.program.iteration(name))
        for name in self.unrolled:
            stage2 = whole_or_part(stage2, stage2.program.iteration(name), "unrolled")
        if self.tiles:
            stage2 = amx_tiles(stage2, self.tiles)
        stage2 = locals_on_stack(stage2)
        return stage2.with_function(stage2.function.with_attr("global_symbol", stage2.name))


def decompose_reductions(stage2: PositionFunction, keep: Collection[str] = ()) -> PositionFunction:
    """Give every init a nest of its own before its reduction, so that it also runs where the reduction is empty.

    keep: names of iterations that stay as they are, since their reductions are never empty.
    """
    initialised = [it for it in walk_iterations(stage2.program.iterations) if it.init and it.name not in keep]
    if not initialised:  # TVM's schedule state gives up on some dataflow between copies that needs no schedule
        return stage2
    schedule = s_tir.Schedule(stage2.function)
    for iteration in initialised:
        nest = plan_nest(iteration)
        number = nest.init_segment
        assert number is not None  # there is an init
        segment = nest.segments[number]
        block = schedule.get_sblock(block_name(iteration, number))
        loops = schedule.get_loops(block)
        first = next(at for at, loop in enumerate(segment) if loop.kind == "R")
        schedule.decompose_reduction(block, loops[len(loops) - len(segment) + first])
    return stage2.with_function(schedule.mod["main"])
