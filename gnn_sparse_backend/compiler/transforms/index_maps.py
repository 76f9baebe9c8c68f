"""The two index maps of a format rewrite rule, checked against each other on sample coordinates."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from ..language.axes import Axis, StageIError
from ..language.expr import Binary, Const, Expr, Load, Select, SizeOf, as_expr
from ..language.interpret import BINARY
from ..language.traversal import walk
from ..language.types import INTEGERS
from .rewrite_rule import FormatRewriteRule, IndexMap

SAMPLES = (0, 1, 2, 3, 7, 62, 64, 1009)
"""Around the block sizes and widths that formats have."""

UNKNOWN_SIZE = 1 << 20
"""What a run-time size is taken for: larger than any sample."""

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    **BINARY,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}


def check_index_maps(rule: FormatRewriteRule, before: tuple[Axis, ...], after: tuple[Axis, ...]) -> None:
    """Raise StageIError unless inverse_index_map(index_map(x)) == x, and index_map(x) lies on the new axes, for samples
    x.

    Maps that read buffers have no value before the program runs, and some are only known as arrays: they are taken on
    trust.
    """
    where = f"rule {rule.name!r}"
    if rule.index_map is None:
        _apply(rule.inverse_index_map, (0,) * len(after), len(before), f"{where}: inverse_index_map", "axes_before")
        return
    samples = ([s for s in SAMPLES if not isinstance(a.length, int) or s < a.length] for a in before)
    for point in product(*samples):
        moved = _apply(rule.index_map, point, len(after), f"{where}: index_map", "axes_after")
        if moved is None:
            return
        for axis, coordinate in zip(after, moved):
            if coordinate < 0 or (isinstance(axis.length, int) and coordinate >= axis.length):
                raise StageIError(f"{where}: index_map takes {point} to {moved}, which lies outside axis {axis.name!r}")
        back = _apply(rule.inverse_index_map, moved, len(before), f"{where}: inverse_index_map", "axes_before")
        if back is not None and back != point:
            raise StageIError(
                f"{where}: index_map takes {point} to {moved}, and inverse_index_map takes that to {back}"
            )


def _apply(index_map: IndexMap, point: tuple[int, ...], count: int, where: str, axes: str) -> tuple[int, ...] | None:
    """The values of a map at a point, or None where it reads a buffer."""
    found = tuple(as_expr(e) for e in index_map(*(Const(x, "int64") for x in point)))
    if len(found) != count:
        raise StageIError(f"{where} gives {len(found)} coordinates for the {count} {axes}")
    if any(e.dtype != "int64" for e in found):
        raise StageIError(
            f"{where} gives a coordinate of type {next(e.dtype for e in found if e.dtype != 'int64')}, not int64"
        )
    if any(isinstance(e, Load) for expr in found for e in walk(expr)):
        return None
    return tuple(evaluate(e, where) for e in found)


def evaluate(expr: Expr, where: str) -> int:
    """The value of integer arithmetic on constants."""
    match expr:
        case Const():
            return int(expr.value)
        case SizeOf():
            return UNKNOWN_SIZE
        case Binary() if expr.a.dtype in INTEGERS:
            return int(_OPERATIONS[expr.op](evaluate(expr.a, where), evaluate(expr.b, where)))
        case Select():
            return evaluate(expr.then if evaluate(expr.condition, where) else expr.otherwise, where)
    raise StageIError(f"{where} is not made of integer arithmetic: {expr!r}")
