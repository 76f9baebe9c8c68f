"""The sparse operands of a merged iteration: which of its axes are walked together, and under which elements.

The axes are those that `where` asks about: in an iteration of j with `merged=(JA, JB)` and
`where(either(stored(JA, i, j), stored(JB, i, j)))` they are JA under i and JB under i.
"""

from __future__ import annotations

from .axes import Axis, refuse
from .expr import Expr, Load, Stored, Var
from .program import Bounds, Iteration, stores_in
from .traversal import walk


def operands(it: Iteration) -> dict[Axis, Stored]:
    """For each merged axis the condition by which `where` asks for it."""
    asked = _asked(it)
    return {axis: next(e for e in asked if e.axis == axis) for axis in it.merged}


def check_merged(it: Iteration, where: str) -> None:
    """Raise StageIError unless the merged axes of an iteration can be walked together."""
    refuse(where, _reason(it))


def check_bounds(bounds: Bounds, it: Iteration, where: str) -> None:
    """Raise StageIError unless an iteration can visit a part of an axis."""
    axis, reason = bounds.axis, None
    if axis not in it.axes or any(axis in group for group in it.fused):
        reason = "which it does not visit by a loop of its own"
    elif [b.axis for b in it.bounds].count(axis) > 1:
        reason = "which has bounds already"
    elif it.init:
        reason = "and has an init; write the initial values in an iteration of their own"
    elif bounds.by not in ("position", "coordinate"):
        reason = f"by {bounds.by!r}; that is 'position' or 'coordinate'"
    elif bounds.by == "coordinate" and axis.is_sparse and (not axis.sorted or axis.padded):
        reason = "whose coordinates are not sorted; give them by position"
    elif (bounds.low.dtype, bounds.high.dtype) != ("int64", "int64"):
        reason = f"of types {bounds.low.dtype} and {bounds.high.dtype}; they are int64"
    elif bounds.most is not None and (not isinstance(bounds.most, int) or bounds.most < 0):
        reason = f"of at most {bounds.most!r} elements; that is a number, or None"
    refuse(f"{where} has bounds of axis {axis.name!r}", reason)


def names_element(axis: Axis, indices: tuple[Expr, ...], axes: tuple[Axis, ...], operand: Stored) -> bool:
    """Whether `indices`, along `axes`, name the very element of `axis` that `operand` asks for."""
    if axis not in axes:
        return False
    by_axis = dict(zip(axes, indices))
    return all(a in by_axis for a in axis.chain) and tuple(by_axis[a] for a in axis.chain) == operand.indices


def _asked(it: Iteration) -> list[Stored]:
    var = it.variables[0]
    found = [] if it.where is None else list(walk(it.where))
    return [e for e in found if isinstance(e, Stored) and e.indices[-1] == var]


def _reason(it: Iteration) -> str | None:
    if len(it.axes) != 1 or it.axes[0].kind != "dense_fixed":
        return "merges axes, so it must be over one dense axis, the coordinates that they have in common"
    if it.init:
        return "merges axes and has an init; write the initial values before it, in the iteration around it"
    asked = _asked(it)
    for axis in it.merged:
        here = {e for e in asked if e.axis == axis}
        reason = _unfit(axis, it.axes[0])
        if reason is None and not here:
            reason = f"its condition does not ask stored({axis.name}, ..., {it.variables[0].name})"
        if reason is None and len(here) > 1:
            reason = "its condition asks for it under several elements; declare an axis for each"
        if reason is None:
            reason = _prefix(here.pop(), it)
        if reason is not None:
            return f"cannot merge axis {axis.name!r}: {reason}"
    return None


def _unfit(axis: Axis, dense: Axis) -> str | None:
    if not axis.is_sparse:
        return f"it is {axis.kind} and stores every coordinate; only sparse axes are merged"
    if not axis.sorted or not axis.unique or axis.padded:
        return "its coordinates must be sorted and unique, without padding"
    if axis.length != dense.length:
        return f"its length is {axis.length}, that of {dense.name!r} is {dense.length}"
    return None


def _prefix(operand: Stored, it: Iteration) -> str | None:
    """Why the element under which an axis is walked is not the same throughout the walk, or None."""
    written = {store.buffer for store in stores_in((it,))} | set(it.locals)
    for part in (e for index in operand.indices[:-1] for e in walk(index)):
        if isinstance(part, Var) and part == it.variables[0]:
            return f"the element above it depends on {part.name}, along which it is walked"
        if isinstance(part, Load) and part.buffer in written:
            return f"the element above it is read from {part.buffer.name!r}, which the body stores to"
    return None
