"""Run the outermost loop of a sparse iteration on the thread pool."""

from __future__ import annotations

from .....deferred import tirx
from ....language.axes import Axis, refuse
from ....language.program import Iteration, Store, stores_in
from ....lowering.nest import Nest, block_name, plan_nest
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..shared.loops import set_loop_kind


@iteration_primitive()
def parallelize_spatial(stage2: PositionFunction, iteration: Iteration) -> PositionFunction:
    """Make the outermost loop of a top-level `iteration` a parallel loop; loops of one turn are passed over.

    TVM's `parallel` refuses a block that adds to what it has not initialised; here stage I says that the elements of a
    spatial axis write disjoint places.

    Preconditions, each refused with a StageIError: the iteration is not nested in another and merges no axes; its
    outermost loop is over spatial axes; where their coordinates may repeat, every store is to the visited element
    itself.

        for i in range(m):                 for i in parallel(m):
            with block("rows_0"): ...  ->      with block("rows_0"): ...
    """
    refuse(f"parallelize_spatial: iteration {iteration.name!r}", refuses(stage2, iteration))
    number, at = _outermost(plan_nest(iteration))
    level = len(plan_nest(iteration).segments[number]) - 1 - at
    return set_loop_kind(stage2, block_name(iteration, number), tirx.ForKind.PARALLEL, level)


def refuses(stage2: PositionFunction, iteration: Iteration) -> str | None:
    """Why the outermost loop cannot run in parallel, or None."""
    if iteration not in stage2.program.iterations:
        return "is nested in another"
    if iteration.merged:
        return "walks along sparse axes, one element after the other"
    nest = plan_nest(iteration)
    number, at = _outermost(nest)
    outer = nest.segments[number][at]
    if outer.kind != "S":
        return f"begins with axis {outer.axes[-1].name!r}, which is not spatial"
    # what outlives an element of the iteration
    stores = [store for store in stores_in((iteration,)) if store.buffer.scope != "local"]
    for axis in outer.axes:
        if not axis.unique and not all(_stores_the_element(store, axis, iteration) for store in stores):
            return f"visits axis {axis.name!r}, whose coordinates may repeat, and stores by the coordinate"
    return None


def _outermost(nest: Nest) -> tuple[int, int]:
    """The segment and the place in it of the first loop that may have more than one turn."""
    places = [(number, at) for number, segment in enumerate(nest.segments) for at in range(len(segment))]
    several = (p for p in places if any(a.parent is not None or a.length != 1 for a in nest.segments[p[0]][p[1]].axes))
    return next(several, places[0])


def _stores_the_element(store: Store, axis: Axis, iteration: Iteration) -> bool:
    """The store is to the very element that is visited, not to what its coordinate names."""
    if axis not in store.buffer.axes:
        return False
    return store.indices[store.buffer.axes.index(axis)] == iteration.variable(axis)
