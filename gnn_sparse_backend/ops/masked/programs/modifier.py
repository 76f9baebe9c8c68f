"""What a score becomes before the softmax: an expression of it, of where its pair is, and of tensors of the user's.

    score + slopes[head] * (key - query)         ALiBi
    20 tanh(score / 20)                          soft capping
    score + bias[head, query - key + 512]        relative positions

A `Node` is such an expression: static, and a part of a kernel. Its derivative is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....frozen import dataclass

NUMBER, INTEGER, CONDITION = "number", "integer", "condition"


@dataclass(frozen=True)
class Node:
    """One operation. kind: of its value, ``NUMBER``, ``INTEGER`` or ``CONDITION``.

    op: one of `modified.OPERATIONS`, with nodes as parts; ``"score"``, ``"batch"``, ``"head"``, ``"query"`` or
    ``"key"``; ``"const"`` with its value; ``"load"`` with the number of a captured tensor and a node for each of its
    indices; ``"to"``, which converts its part.
    """

    op: str
    parts: tuple[Any, ...] = ()
    kind: str = NUMBER


@dataclass(frozen=True)
class Modifier:
    """node: what scores become. captured: type and number of dimensions of each tensor that it reads."""

    node: Node
    captured: tuple[tuple[str, int], ...] = ()


def leaves_of(node: Node) -> frozenset[str]:
    """The operations of a node and all of its parts."""
    return frozenset((node.op,)).union(*(leaves_of(part) for part in node.parts if isinstance(part, Node)))


SCORE = Node("score")
BATCH, HEAD, QUERY, KEY = PLACES = tuple(Node(name, (), INTEGER) for name in ("batch", "head", "query", "key"))


def const(value: float, kind: str = NUMBER) -> Node:
    """A number of the program."""
    return Node("const", (value,), kind)


_ZERO, _ONE = const(0.0), const(1.0)


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
    "sin": lambda node, x, dx: _times(dx, Node("cos", (x,))),
    "cos": lambda node, x, dx: _times(_minus(dx), Node("sin", (x,))),
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
