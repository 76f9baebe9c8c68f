"""Expressions of a statement as expressions of stage I, in the type that the result is summed in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...compiler import call as call_of
from ...compiler import cast, maximum, number, select
from ...compiler.language.expr import Expr, binary
from ..semirings import PLUS_TIMES, Combine
from .notation import TRUTH, Access, Call, Expression, Number, Operation
from .terms import Term

JOINS = {"&": "min", "|": "max"}
"""What is done with the truth values 0 and 1."""
Element = Callable[[Access], Expr]
"""What an access reads, in the operand's own type."""


def constant(value: float, dtype: str) -> Expr:
    """A number in the type of the sum."""
    return number(value if dtype == "int64" else float(value), dtype)


def product(
    term: Term, dtype: str, element: Element, summed: Expr | None = None, multiply: Combine = PLUS_TIMES.multiply
) -> Expr:
    """The factors of a term multiplied, its divisors last, and its coefficient; summed: what stands for the others."""
    found, coefficient = summed, term.coefficient
    for factor in sorted(term.factors, key=lambda each: each.inverse):
        x = value(factor.of, dtype, element)
        if found is None:
            found, coefficient = (constant(coefficient, dtype) / x, 1) if factor.inverse else (x, coefficient)
        else:
            found = found / x if factor.inverse else multiply(found, x)
    if found is None:
        return constant(coefficient, dtype)
    return found if coefficient == 1 else constant(coefficient, dtype) * found


def value(expression: Expression, dtype: str, element: Element) -> Expr:
    """An expression of one element of each operand."""
    inner = partial(value, dtype=dtype, element=element)
    match expression:
        case Number():
            return constant(expression.value, dtype)
        case Access():
            return cast(dtype, element(expression))
        case Call():
            x = inner(expression.argument)
            if expression.function == TRUTH:
                return x
            if expression.function == "relu":
                return maximum(constant(0, dtype), x)  # NaN stays NaN in this order
            if expression.function == "abs" and dtype == "int64":
                return select(x < 0, 0 - x, x)
            return call_of(expression.function, x)
    assert isinstance(expression, Operation)
    a, b = inner(expression.a), inner(expression.b)
    match expression.sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
    if expression.sign in JOINS:
        return binary(JOINS[expression.sign], a, b)
    return select(binary(expression.sign, a, b), constant(1, dtype), constant(0, dtype))
