"""Reductions: how the messages of a row become its result. A table, and all that is particular to each.

Whoever reduces asks the table: programs how a message is taken in, the planner what kind of loop it is, operators what
a row without messages is, and how the gradient comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...frozen import dataclass
from .expr import Expr, number
from .types import FLOATS

Combine: TypeAlias = Callable[[Expr, Expr], Expr]


def _nothing(x: Expr, y: Expr) -> Expr:
    """What a reduction has not got."""
    raise TypeError("this reduction is of the other kind: ask for `chooses` first")


@dataclass(frozen=True, eq=False)
class Reduction:
    """One way to reduce.

    Attributes:
        name: as users write it.
        identity: the result before the first message.
        combine: (what there is, a message) to what there is then; not of those that choose, which `beats` says all of.
        beats: of those that choose one of the messages: (a message, another) to whether it is the better one.
        matches: as ``beats``, and where the two are equal.
        divides: whether the result is divided by the number of messages in the end.
        parts: the name of the reduction of a part of a row, whose results are then reduced by this one; "" where it is
            the same.
        adds: whether it adds messages up.
        gradient: what flows back to a message, written as messages are (`ops.message.programs.message`), of the
            ``cotangent`` of its row, the ``message`` itself, the ``result`` of the row, ``scale``: 1 / the number of
            its messages, and ``others``: the product of its other messages. "" of those that choose: the cotangent
            goes to the message that was chosen, or is shared by those that are equal to it.
    """

    name: str
    identity: float
    gradient: str = ""
    combine: Combine = _nothing
    beats: Combine = _nothing
    matches: Combine = _nothing
    divides: bool = False
    parts: str = ""
    adds: bool = False

    def start(self, dtype: str) -> Expr:
        """The identity in a type; in one of integers the least or the greatest of these stands for an infinity."""
        if dtype in FLOATS:
            return number(self.identity, dtype)
        limits = np.iinfo(dtype)
        return number(int(max(limits.min, min(limits.max, self.identity))), dtype)

    @property
    def chooses(self) -> bool:
        """Whether the result is one of the messages: compared as it would be stored, with ties between equal ones."""
        return self.beats is not _nothing

    @property
    def of_parts(self) -> str:
        """The name of the reduction of a part of a row."""
        return self.parts or self.name


REDUCTIONS = {
    reduction.name: reduction
    for reduction in (
        Reduction("sum", 0.0, "cotangent", lambda x, y: x + y, adds=True),
        Reduction("mean", 0.0, "mul(cotangent, scale)", lambda x, y: x + y, divides=True, parts="sum", adds=True),
        Reduction("prod", 1.0, "mul(cotangent, others)", lambda x, y: x * y),
        Reduction("max", float("-inf"), beats=lambda x, y: x > y, matches=lambda x, y: x >= y),
        Reduction("min", float("inf"), beats=lambda x, y: x < y, matches=lambda x, y: x <= y),
    )
}
"""Reductions by name. What is not here is an error where a user's word comes in."""


def adds(name: str) -> bool:
    """Whether it is a reduction that adds messages up."""
    return name in REDUCTIONS and REDUCTIONS[name].adds


def chooses(name: str) -> bool:
    """Whether it is a reduction that chooses one of the messages."""
    return name in REDUCTIONS and REDUCTIONS[name].chooses
