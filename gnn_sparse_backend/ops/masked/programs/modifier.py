"""What a score becomes before the softmax: an expression of it, of where its pair is, and of tensors of the user's.

    score + slopes[head] * (key - query)         ALiBi
    20 tanh(score / 20)                          soft capping
    score + bias[head, query - key + 512]        relative positions

A `Node` is such an expression: static, and a part of a kernel. Its derivative is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
from ....frozen import dataclass

NUMBER, INTEGER, CONDITION = "number", "integer", "condition"
Load = Callable[[int, Sequence[Expr]], Expr]
"""From a captured tensor and an index for each of its dimensions to its element there."""


@dataclass(frozen=True)
class Node:
    """One operation. kind: of its value, ``NUMBER``, ``INTEGER`` or ``CONDITION``.

    op: one of `OPERATIONS`, with nodes as parts; ``"score"``, ``"batch"``, ``"head"``, ``"query"`` or ``"key"``;
    ``"const"`` with its value; ``"load"`` with the number of a captured tensor and a node for each of its indices;
    ``"to"``, which converts its part.
    """

    op: str
    parts: tuple[Any, ...] = ()
    kind: str = NUMBER


@dataclass(frozen=True)
class Modifier:
    """node: what scores become. captured: type and number of dimensions of each tensor that it reads."""

    node: Node
    captured: tuple[tuple[str, int], ...] = ()


SCORE = Node("score")
BATCH, HEAD, QUERY, KEY = PLACES = tuple(Node(name, (), INTEGER) for name in ("batch", "head", "query", "key"))


def const(value: float, kind: str = NUMBER) -> Node:
    """A number of the program."""
    return Node("const", (value,), kind)


_ZERO, _ONE = const(0.0), const(1.0)
_NUMBERS = ("add", "sub", "mul", "div", "min", "max")
_FUNCTIONS = ("exp", "log", "sqrt", "tanh", "sigmoid", "abs")
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


def lower(node: Node, accumulator: str, leaves: dict[str, Expr], load: Load) -> Expr:
    """The node as an expression of coordinate space. leaves: score and places, by name."""

    def of(each: Node) -> Expr:
        if each.op in leaves:
            return leaves[each.op]
        if each.op == "const":
            if each.kind == CONDITION:
                return equal(number(int(each.parts[0])), number(1))
            return number(each.parts[0], accumulator if each.kind == NUMBER else "int64")
        if each.op == "load":
            which, *at = each.parts
            found = load(which, [of(index) for index in at])
            return cast(accumulator, found) if each.kind == NUMBER else _as_condition(found, each.kind)
        parts = [of(part) for part in each.parts]
        if each.op == "to":
            return _converted(parts[0], each.parts[0].kind, each.kind, accumulator)
        return _LOWERED[each.op](*parts)

    return of(node)


def _as_condition(value: Expr, kind: str) -> Expr:
    return differ(value, number(0)) if kind == CONDITION else value


def _converted(value: Expr, kind: str, to: str, accumulator: str) -> Expr:
    if to == CONDITION:
        return differ(value, number(0, value.dtype))
    if kind == CONDITION:
        one, none = (number(n, accumulator if to == NUMBER else "int64") for n in (1, 0))
        return select(value, one, none)
    return cast(accumulator if to == NUMBER else "int64", value)


def slope(node: Node) -> Node | None:
    """The derivative by the score; None where there is none. That of ``min`` and ``max`` of equal numbers is shared."""
    if node.op == "score":
        return _ONE
    if node.kind != NUMBER or node.op in ("const", "load", "to"):
        return slope(node.parts[0]) if node.op == "to" and node.parts[0].kind == NUMBER else None
    if node.op == "where":
        condition, *ways = node.parts
        slopes = [slope(way) for way in ways]
        if slopes == [None, None]:
            return None
        return Node("where", (condition, *(each or _ZERO for each in slopes)))
    slopes = [slope(part) for part in node.parts]
    if not any(slopes):
        return None
    return _SLOPES[node.op](node, *node.parts, *slopes)


def _plus(a: Node | None, b: Node | None) -> Node:
    if a is None or b is None:
        found = b if a is None else a
        assert found is not None
        return found
    return Node("add", (a, b))


def _times(a: Node | None, by: Node) -> Node | None:
    return None if a is None else by if a == _ONE else Node("mul", (a, by))


def _minus(a: Node | None) -> Node | None:
    return None if a is None else Node("neg", (a,))


def _square(a: Node) -> Node:
    return Node("mul", (a, a))


def _by_quotient(node: Node, x: Node, y: Node, dx: Node | None, dy: Node | None) -> Node:
    return _plus(_times(dx, Node("div", (_ONE, y))), _times(_minus(dy), Node("div", (node, y))))


def _by_extreme(first_below: Callable[[Node, Node], Node]) -> Callable[..., Node]:
    def found(node: Node, x: Node, y: Node, dx: Node | None, dy: Node | None) -> Node:
        own, other = dx or _ZERO, dy or _ZERO
        shared = Node("mul", (const(0.5), Node("add", (own, other))))
        alike = Node("where", (Node("equal", (x, y), CONDITION), shared, other))
        return Node("where", (first_below(x, y), own, alike))

    return found


_SLOPES: dict[str, Callable[..., Any]] = {
    "add": lambda node, x, y, dx, dy: _plus(dx, dy),
    "sub": lambda node, x, y, dx, dy: _plus(dx, _minus(dy)),
    "mul": lambda node, x, y, dx, dy: _plus(_times(dx, y), _times(dy, x)),
    "div": _by_quotient,
    "neg": lambda node, x, dx: _minus(dx),
    "exp": lambda node, x, dx: _times(dx, node),
    "log": lambda node, x, dx: _times(dx, Node("div", (_ONE, x))),
    "sqrt": lambda node, x, dx: _times(dx, Node("div", (const(0.5), node))),
    "tanh": lambda node, x, dx: _times(dx, Node("sub", (_ONE, _square(node)))),
    "sigmoid": lambda node, x, dx: _times(dx, Node("mul", (node, Node("sub", (_ONE, node))))),
    "abs": lambda node, x, dx: Node(
        "where",
        (
            Node("less", (_ZERO, x), CONDITION),
            dx,
            Node("where", (Node("less", (x, _ZERO), CONDITION), _minus(dx), _ZERO)),
        ),
    ),
    "min": _by_extreme(lambda x, y: Node("less", (x, y), CONDITION)),
    "max": _by_extreme(lambda x, y: Node("less", (y, x), CONDITION)),
}
