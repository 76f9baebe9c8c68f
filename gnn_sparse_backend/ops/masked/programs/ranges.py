"""Bounds of the whole numbers in a change of scores: those that fit 32 bits are computed in them, twice as many at a
time, and become floating-point numbers in one instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .modifier import CONDITION, INTEGER, Node

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
