"""What a change of scores knows of where its pair is: bounds of its whole numbers, and parts that many pairs share.

Whole numbers that fit 32 bits are computed in them, twice as many at a time, and become floating-point numbers in one
instruction. What depends on the query alone, or on how far the key is from it, is computed once for each of these, not
for each pair of a block: ALiBi, relative positions, whatever their tables are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .modifier import CONDITION, INTEGER, NUMBER, Node, leaves_of

Bounds: TypeAlias = tuple[int, int]
FARTHEST = 2**27 - 1
"""The largest batch, head, query and key."""
_WIDTHS = {"int32": 32, "uint8": 8, "bool": 1}
_LEAST, _MOST = -(2**31), 2**31 - 1


def bounds_of(node: Node, captured: tuple[tuple[str, int], ...]) -> Bounds | None:
    """The least and the largest value of an integer, or None where 32 bits may not hold it or one of its parts."""

    def of(each: Node) -> Bounds | None:
        if each.op in ("batch", "head", "query", "key"):
            return 0, FARTHEST
        if each.op == "const":
            return _held(int(each.parts[0]), int(each.parts[0]))
        if each.op == "load":
            width = _WIDTHS.get(captured[each.parts[0]][0])
            return None if width is None else (0, 2**width - 1) if width < 32 else (_LEAST, _MOST)
        if each.op == "to":
            return (0, 1) if each.parts[0].kind == CONDITION else None
        parts = [of(part) for part in each.parts if part.kind == INTEGER]
        if each.op not in _BOUNDS or None in parts:
            return None
        return _held(*_BOUNDS[each.op](*parts))

    return of(node)


def _held(low: int, high: int) -> Bounds | None:
    return (low, high) if _LEAST <= low and high <= _MOST else None


def _product(x: Bounds, y: Bounds) -> Bounds:
    ends = [a * b for a in x for b in y]
    return min(ends), max(ends)


def _quotient(x: Bounds, y: Bounds) -> Bounds:
    most = max(abs(x[0]), abs(x[1]))
    return -most - 1, most


def _rest(x: Bounds, y: Bounds) -> Bounds:
    """A rest has the sign of the divisor, as PyTorch has it."""
    return min(y[0], 0), max(y[1], 0)


_BOUNDS: dict[str, Callable[..., Bounds]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "mul": _product,
    "floor_div": _quotient,
    "mod": _rest,
    "neg": lambda x: (-x[1], -x[0]),
    "min": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "max": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "where": lambda x, y: (min(x[0], y[0]), max(x[1], y[1])),
}


LANES, DISTANCES = "lanes", "distances"
"""What a part of a change has one value for each of."""


def apart(node: Node, lanes: str, found: list[tuple[str, Node]]) -> Node:
    """The node with the parts that are alike for many pairs as leaves ``kept0``, ``kept1`` and so on. They are added to
    ``found``, with what each has a value for. lanes: which place differs from lane to lane, "query" or "key".
    """
    if node.kind == NUMBER and node.parts and (of := _alike(node, lanes)) is not None:
        if (of, node) not in found:
            found.append((of, node))
        return Node(f"kept{found.index((of, node))}")
    parts = tuple(apart(part, lanes, found) if isinstance(part, Node) else part for part in node.parts)
    return Node(node.op, parts, node.kind)


def _alike(node: Node, lanes: str) -> str | None:
    leaves = leaves_of(node)
    if "score" in leaves or not leaves & {"query", "key"}:
        return None
    if not leaves & ({"query", "key"} - {lanes}):
        return LANES
    return DISTANCES if _by_distance(node) else None


def _by_distance(node: Node) -> bool:
    """Whether the node depends on query and key by their difference alone."""
    if (steps := _steps(node)) is not None:
        return sum(steps) == 0
    parts = [part for part in node.parts if isinstance(part, Node)]
    return bool(parts) and all(map(_by_distance, parts))


def _steps(node: Node) -> tuple[int, int] | None:
    """What an integer grows by from one query, and from one key, to the next; None where steps differ."""
    if node.op in ("query", "key"):
        return (1, 0) if node.op == "query" else (0, 1)
    if not leaves_of(node) & {"query", "key"}:
        return 0, 0
    parts = [_steps(part) for part in node.parts if isinstance(part, Node)]
    if node.kind != INTEGER or None in parts:
        return None
    if node.op == "neg":
        ((a, b),) = parts
        return -a, -b
    if node.op in ("add", "sub"):
        (a, b), (c, d) = parts
        return (a + c, b + d) if node.op == "add" else (a - c, b - d)
    return None
