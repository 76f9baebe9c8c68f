"""Whether a coordinate surely lies within an axis, from what the iterators of its variables range over."""

from __future__ import annotations

from collections.abc import Mapping

from ..language.axes import Axis, Size
from ..language.expr import Binary, Const, Expr, Var


def within(expr: Expr, axis: Axis, axis_of: Mapping[Var, Axis]) -> bool:
    """Whether ``expr`` is a coordinate of ``axis`` whatever its variables are. False where that cannot be told."""
    if isinstance(expr, Var) and axis_of[expr].length == axis.length and not axis_of[expr].padded:
        return True
    found = _bounds(expr, axis_of)
    return found is not None and isinstance(axis.length, int) and 0 <= found[0] and found[1] < axis.length


def _bounds(expr: Expr, axis_of: Mapping[Var, Axis]) -> tuple[int, int] | None:
    """The least and the largest value of an integer expression, or None where they are not known here."""
    match expr:
        case Const(value=int(known)):
            return known, known
        case Var():
            axis = axis_of[expr]
            # an axis of no elements has no coordinate; the padding of a slot is a negative one
            if isinstance(axis.length, Size) or axis.length <= 0 or axis.padded:
                return None
            return 0, axis.length - 1
        case Binary(op="+" | "-" | "*" | "//" | "%"):
            a, b = _bounds(expr.a, axis_of), _bounds(expr.b, axis_of)
            return None if a is None or b is None else _combined(expr.op, a, b)
    return None


def _combined(op: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int] | None:
    if op == "+":
        return a[0] + b[0], a[1] + b[1]
    if op == "-":
        return a[0] - b[1], a[1] - b[0]
    if op == "*":
        corners = [x * y for x in a for y in b]
        return min(corners), max(corners)
    if b[0] != b[1] or b[0] <= 0:
        return None
    if op == "//":
        return a[0] // b[0], a[1] // b[0]
    return (a[0], a[1]) if 0 <= a[0] and a[1] < b[0] else (0, b[0] - 1)
