"""Sets of small numbers as the bits of integers that are not negative.

`bit(n)` is the set {n}, `bit_or` the union and `bit_and` the intersection of two sets; `bit_count` is how many numbers
a set has, `trailing_zeros` the least of them, which `without_lowest` takes out.
"""

from __future__ import annotations

from .expr import Expr, ExprLike, binary, call


def bit_and(a: ExprLike, b: ExprLike) -> Expr:
    """The bits that two integers have in common; of such as are not negative."""
    return binary("&", a, b)


def bit_or(a: ExprLike, b: ExprLike) -> Expr:
    """The bits that one of two integers has; of such as are not negative."""
    return binary("|", a, b)


def bit(n: ExprLike) -> Expr:
    """2 to the power n, from 0 to 62."""
    return call("bit", n)


def bit_count(x: ExprLike) -> Expr:
    """How many bits of x are set."""
    return call("bit_count", x)


def trailing_zeros(x: ExprLike) -> Expr:
    """The place of the lowest bit of x that is set. Ask only where there is one."""
    return call("trailing_zeros", x)


def without_lowest(x: Expr) -> Expr:
    """x without the lowest bit that is set. Ask only where there is one."""
    return bit_and(x, x - 1)
