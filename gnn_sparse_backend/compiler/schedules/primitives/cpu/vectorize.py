"""Vectorise the loop of a spatial iteration that accumulates into its own elements."""

from __future__ import annotations

from tvm import tirx

from ....language.axes import refuse
from ....language.expr import Load
from ....language.program import Iteration, Store
from ....language.traversal import walk
from ....position.function import PositionFunction
from ..shared.loops import set_loop_kind


def vectorize_spatial(stage2: PositionFunction, iteration: Iteration) -> PositionFunction:
    """Make the loop of `iteration`, over one static dense spatial axis, a vector loop.

    TVM's `vectorize` refuses a block that reads what it writes; here stage I says that it is safe.

    Preconditions, each refused with a StageIError: one axis, spatial, dense-fixed of static length, and none merged; a
    body of stores only, each to a place of the element's own; every buffer that is stored to is read at the very same
    indices, if at all.

        for k in range(64):                                  for k in vectorized(64):
            with block("sum_0"): S[vk] = S[vk] + x[vk]  ->       with block("sum_0"): S[vk] = S[vk] + x[vk]
    """
    refuse(f"vectorize_spatial: iteration {iteration.name!r}", refuses(iteration))
    return set_loop_kind(stage2, iteration.name, tirx.ForKind.VECTORIZED)


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
    for store in iteration.stores:
        if not any(e == var for index in store.indices for e in walk(index)):
            return f"stores every element to the same place of {store.buffer.name!r}"
        for other in iteration.stores:
            for expr in (e for root in (other.value, *other.indices) for e in walk(root)):
                if isinstance(expr, Load) and expr.buffer == store.buffer and expr.indices != store.indices:
                    return f"reads buffer {store.buffer.name!r} elsewhere than it writes it"
    return None
