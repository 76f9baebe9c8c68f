"""A change of scores as an expression of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....compiler.language.expr import (
    Expr,
    both,
    call,
    cast,
    differ,
    either,
    equal,
    maximum,
    minimum,
    number,
    select,
)
from .modifier import CONDITION, INTEGER, NUMBER, Modifier, Node
from .places import Bounds, bounds_of

NARROW, WIDE = "int32", "int64"
Index = tuple[Expr, Bounds | None]
"""An index, and its bounds where 32 bits hold it."""
Load = Callable[[int, Sequence[Index]], Expr]
"""From a captured tensor and an index for each of its dimensions to its element there."""
_FUNCTIONS = ("exp", "log", "sqrt", "tanh", "sigmoid", "abs", "sin", "cos")
_LOWERED: dict[str, Callable[..., Expr]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "floor_div": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "neg": lambda x: -x,
    "min": minimum,
    "max": maximum,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "equal": equal,
    "differ": differ,
    "and": both,
    "or": either,
    "where": select,
    **{name: lambda x, name=name: call(name, x) for name in _FUNCTIONS},
}
OPERATIONS = frozenset(_LOWERED)
"""What a `Node` may do to its parts."""


def lower(modifier: Modifier, node: Node, accumulator: str, leaves: dict[str, Expr], load: Load) -> Expr:
    """The node as an expression of coordinate space. leaves: score and places, by name, these in 32 bits."""

    def type_of(each: Node) -> str:
        if each.kind == NUMBER:
            return accumulator
        return WIDE if bounds_of(each, modifier.captured) is None else NARROW

    def of(each: Node) -> Expr:
        if each.op in leaves:
            return leaves[each.op]
        if each.op == "const":
            if each.kind == CONDITION:
                return equal(number(int(each.parts[0])), number(1))
            return number(each.parts[0], type_of(each))
        if each.op == "load":
            which, *at = each.parts
            found = load(which, [(of(index), bounds_of(index, modifier.captured)) for index in at])
            return differ(found, number(0)) if each.kind == CONDITION else cast(type_of(each), found)
        if each.op == "to":
            return _converted(of(each.parts[0]), each.parts[0].kind, each.kind, type_of(each))
        parts = [of(part) for part in each.parts]
        whole = [n for n, part in enumerate(each.parts) if part.kind == INTEGER]
        if any(parts[n].dtype == WIDE for n in whole) or (whole and each.kind == INTEGER and type_of(each) == WIDE):
            parts = [cast(WIDE, part) if n in whole else part for n, part in enumerate(parts)]
        return _LOWERED[each.op](*parts)

    return of(node)


def _converted(value: Expr, kind: str, to: str, dtype: str) -> Expr:
    if to == CONDITION:
        return differ(value, number(0, value.dtype))
    if kind == CONDITION:
        return select(value, number(1, dtype), number(0, dtype))
    return cast(dtype, value)
