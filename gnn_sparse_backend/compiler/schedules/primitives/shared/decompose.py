"""Give the inits of reductions nests of their own."""

from __future__ import annotations

from .....deferred import s_tir, tirx
from ....codegen.nodes import nodes
from ....language.program import walk_iterations
from ....lowering.nest import block_name, plan_nest
from ....position.function import PositionFunction
from ...sequence import primitive

LANE_REDUCTIONS = "gsb.lane_reductions"
"""Attribute of a function: how many reductions among threads it has."""


@primitive()
def decompose_reductions(stage2: PositionFunction) -> PositionFunction:
    """Give every init a nest of its own before its reduction, so that it also runs where the reduction is empty.

    A reduction over threads stays as it is: TVM makes one of shuffles of it, which is never empty. Primitives that
    speak of the loops above a block come before this one, which parts them from the block.
    """
    among_threads = _among_threads(stage2.function)
    initialised = []
    for it in walk_iterations(stage2.program.iterations):
        nest = plan_nest(it)
        number = nest.init_segment
        if number is not None and block_name(it, number) not in among_threads:
            initialised.append((block_name(it, number), nest.segments[number]))
    if initialised:  # TVM's schedule state gives up on some dataflow between copies that needs no schedule
        schedule = s_tir.Schedule(stage2.function)
        for name, segment in initialised:
            block = schedule.get_sblock(name)
            loops = schedule.get_loops(block)
            first = next(at for at, loop in enumerate(segment) if loop.kind == "R")
            schedule.decompose_reduction(block, loops[len(loops) - len(segment) + first])
        stage2 = stage2.with_function(schedule.mod["main"])
    if among_threads:
        stage2 = stage2.with_function(stage2.function.with_attr(LANE_REDUCTIONS, len(among_threads)))
    return stage2


def _among_threads(function: tirx.PrimFunc) -> set[str]:
    """The names of blocks with an init that reduce over a loop which is bound to threads."""
    threads = [
        loop.loop_var
        for loop in nodes(function.body, tirx.For)
        if loop.thread_binding is not None and str(loop.thread_binding.thread_tag) == "threadIdx.x"
    ]
    return {
        realize.block.name_hint
        for realize in nodes(function.body, s_tir.SBlockRealize)
        if realize.block.init is not None
        for each, value in zip(realize.block.iter_vars, realize.iter_values)
        if each.iter_type == tirx.IterVar.CommReduce and any(value.same_as(thread) for thread in threads)
    }
