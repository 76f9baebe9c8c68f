"""Vectorise the loop of a spatial iteration that accumulates into its own elements."""

from __future__ import annotations

from .....deferred import tirx
from ....codegen.nodes import int64, substitute
from ....language.axes import refuse
from ....language.expr import Load
from ....language.program import Iteration, Store, walk_iterations
from ....language.traversal import walk
from ....position.function import PositionFunction
from ...sequence import iteration_primitive
from ..shared.loops import rewrite_loop, rewrite_loops

MOST_LANES, LANES = 128, 64
"""The longest loop that is one vector, and the longest vectors of a longer one: LLVM takes minutes over one of several
hundred lanes whose elements are gathered.
"""


@iteration_primitive()
def vectorize_spatial(stage2: PositionFunction, iteration: Iteration) -> PositionFunction:
    """Make the loop of `iteration`, over one static dense spatial axis, a vector loop.

    TVM's `vectorize` refuses a block that reads what it writes; here stage I says that it is safe.

    Preconditions, each refused with a StageIError: one axis, spatial, dense-fixed of static length, and none merged; a
    body of stores only, each to a place of the element's own; every buffer that is stored to is read at the very same
    indices, if at all.

        for k in range(64):                                  for k in vectorized(64):
            with block("sum_0"): S[vk] = S[vk] + x[vk]  ->       with block("sum_0"): S[vk] = S[vk] + x[vk]

    A loop of more than `MOST_LANES` elements is cut into vectors of at most `LANES` that divide it.
    """
    refuse(f"vectorize_spatial: iteration {iteration.name!r}", refuses(iteration))
    return rewrite_loop(stage2, iteration.name, 0, _in_vectors)


def vectorize_each(stage2: PositionFunction) -> PositionFunction:
    """Make a vector loop of every iteration of several elements that is not refused, in one walk over the function.

    The loops are apart from one another, since an iteration that holds others is refused.
    """
    names = [
        iteration.name
        for iteration in walk_iterations(stage2.program.iterations)
        if refuses(iteration) is None and iteration.axes[0].static_length > 1
    ]
    return rewrite_loops(stage2, names, 0, _in_vectors) if names else stage2


def _in_vectors(loop: tirx.For) -> tirx.For:
    extent = int(loop.extent)
    lanes = extent if extent <= MOST_LANES else max(n for n in range(1, LANES + 1) if extent % n == 0)
    if lanes == extent:
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.VECTORIZED, loop.body)
    if lanes == 1:
        return loop
    turn, lane = tirx.Var("turn", "int64"), tirx.Var("lane", "int64")
    body = substitute(loop.body, {loop.loop_var: turn * int64(lanes) + lane})
    vector = tirx.For(lane, int64(0), int64(lanes), tirx.ForKind.VECTORIZED, body)
    return tirx.For(turn, int64(0), int64(extent // lanes), tirx.ForKind.SERIAL, vector)


def refuses(iteration: Iteration) -> str | None:
    """Why `iteration` cannot be vectorised, or None."""
    if len(iteration.axes) != 1 or iteration.kinds != "S":
        return "is not over one spatial axis"
    if iteration.bounds:
        return "visits some of its elements only"
    if iteration.merged:
        return "walks along sparse axes, one element after the other"
    axis = iteration.axes[0]
    if axis.kind != "dense_fixed" or not isinstance(axis.length, int):
        return f"is over axis {axis.name!r}, which is not dense-fixed of static length"
    if not all(isinstance(s, Store) for s in iteration.body):
        return "holds other iterations"
    var = iteration.variables[0]
    stores = iteration.stores
    loads = [
        load
        for store in stores
        for root in (store.value, *store.indices)
        for load in walk(root)
        if isinstance(load, Load)
    ]
    for store in stores:
        if not any(e == var for index in store.indices for e in walk(index)):
            return f"stores every element to the same place of {store.buffer.name!r}"
        if any(load.buffer == store.buffer and load.indices != store.indices for load in loads):
            return f"reads buffer {store.buffer.name!r} elsewhere than it writes it"
    return None
