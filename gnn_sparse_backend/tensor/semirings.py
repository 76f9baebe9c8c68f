"""Semirings: what stands for the sum and the product of index notation. A table, and all that is particular to each.

What is not stored is the zero of the semiring: nothing is multiplied by it, and it is added to nothing. It is what a
sum of nothing is in a result that is an ordinary array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ..compiler import differ, number, select
from ..compiler.language.expr import Expr, binary
from ..compiler.language.types import FLOATS
from ..frozen import dataclass

Combine: TypeAlias = Callable[[Expr, Expr], Expr]


def _extreme(op: str, better: str) -> Combine:
    """The one of two values that is better, or NaN where there is one, as NumPy's `maximum` does."""

    def combine(known: Expr, x: Expr) -> Expr:
        if x.dtype not in FLOATS:
            return binary(op, x, known)
        infinity = number(float("inf"), x.dtype)
        return select(differ(x, x), infinity - infinity, select(binary(better, x, known), x, known))

    return combine


def _add(a: Expr, b: Expr) -> Expr:
    return a + b


def _multiply(a: Expr, b: Expr) -> Expr:
    return a * b


MINIMUM, MAXIMUM = _extreme("min", "<"), _extreme("max", ">")


@dataclass(frozen=True, eq=False)
class Semiring:
    """One of them.

    Attributes:
        name: as users write it: the sum and the product.
        add: (what there is, one more) to what there is then.
        multiply: (a value, another) to their product.
        distributes: whether a factor of all terms of a sum may be multiplied with the sum instead. It may not where the
            order of numbers is turned by those below zero.
        dtype: of operands and results; "" where it is that of the operands.
    """

    name: str
    add: Combine
    multiply: Combine
    distributes: bool = True
    dtype: str = ""

    @property
    def is_ordinary(self) -> bool:
        """Whether it is that of sums and products, which has numbers, differences, fractions and functions too."""
        return self.name == ORDINARY

    def zero(self, dtype: str) -> float | int:
        """A sum of nothing, in the type of a result."""
        if self.add not in (MINIMUM, MAXIMUM) or dtype == "bool":
            return 0
        if dtype in FLOATS:
            return float("inf") if self.add is MINIMUM else float("-inf")
        limits = np.iinfo(dtype)
        return int(limits.max if self.add is MINIMUM else limits.min)


ORDINARY = "plus_times"
SEMIRINGS = {
    semiring.name: semiring
    for semiring in (
        Semiring(ORDINARY, _add, _multiply),
        Semiring("min_plus", MINIMUM, _add),
        Semiring("max_plus", MAXIMUM, _add),
        Semiring("min_times", MINIMUM, _multiply, distributes=False),
        Semiring("max_times", MAXIMUM, _multiply, distributes=False),
        Semiring("min_max", MINIMUM, MAXIMUM),
        Semiring("max_min", MAXIMUM, MINIMUM),
        Semiring("or_and", MAXIMUM, MINIMUM, dtype="bool"),
    )
}
"""Semirings by name. What is not here is an error where a user's word comes in."""
PLUS_TIMES = SEMIRINGS[ORDINARY]


def semiring_of(name: object) -> Semiring:
    """The semiring of a name. Raises ValueError for another one."""
    if not isinstance(name, str) or name not in SEMIRINGS:
        raise ValueError(f"semiring {name!r:.60} is not one of {', '.join(map(repr, SEMIRINGS))}")
    return SEMIRINGS[name]
