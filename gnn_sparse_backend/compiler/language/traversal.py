"""Going through expressions: their parts, and the same expression of other parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .expr import Binary, Call, Cast, Expr, Load, Offset, Owner, Present, Select, Stored, present

_CHILDREN: dict[type[Expr], Callable[[Any], tuple[Expr, ...]]] = {
    **dict.fromkeys((Load, Stored, Offset), lambda expr: expr.indices),
    Owner: lambda expr: (expr.at,),
    Binary: lambda expr: (expr.a, expr.b),
    Call: lambda expr: (expr.argument,),
    Select: lambda expr: (expr.condition, expr.then, expr.otherwise),
    Cast: lambda expr: (expr.value,),
    Present: lambda expr: (expr.load,),
}


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions."""
    parts = _CHILDREN.get(type(expr))
    return () if parts is None else parts(expr)


def map_children(expr: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """`expr` with f applied to its direct sub-expressions."""
    kids = children(expr)
    return rebuild(expr, tuple(map(f, kids))) if kids else expr


def rebuild(expr: Expr, kids: tuple[Expr, ...]) -> Expr:
    """`expr` with other sub-expressions."""
    match expr:
        case Load():
            return Load(expr.buffer, kids)
        case Stored():
            return Stored(expr.axis, kids)
        case Offset():
            return Offset(expr.axis, kids, expr.part)
        case Owner():
            return Owner(expr.axis, *kids)
        case Binary():
            return Binary(expr.op, *kids)
        case Call():
            return Call(expr.function, *kids)
        case Select():
            return Select(*kids)
        case Cast():
            return Cast(expr.dtype, *kids)
        case Present():
            return present(*kids)
    return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """Every sub-expression, the expression itself last."""
    found, left = [], [expr]
    while left:
        expr = left.pop()
        found.append(expr)
        left += children(expr)
    return reversed(found)


def rewrite(expr: Expr, f: Callable[[Expr], Expr | None]) -> Expr:
    """Bottom-up: f(node) gives the node's replacement, or None to keep it."""
    kids = children(expr)
    new = tuple(rewrite(kid, f) for kid in kids)
    node = expr if all(a is b for a, b in zip(kids, new)) else rebuild(expr, new)
    replaced = f(node)
    return node if replaced is None else replaced
