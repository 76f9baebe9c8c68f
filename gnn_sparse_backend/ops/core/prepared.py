"""What ``precompile`` and ``explain`` know operators by: their names, widths and operands on a structure.

A family says it beside its operators (`prepares`), and what its structure is (`structures`); nobody else lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ...frozen import dataclass
from .operator import Operator

Width: TypeAlias = int | tuple[int, ...]
Shapes: TypeAlias = Callable[[Any, Width], list[tuple[int, ...]]]


@dataclass(frozen=True)
class Kind:
    """A kind of structure.

    on: its class. words: what users give, as errors say it. count: what operators go over, of which nothing runs where
    there is none. name: of one, in words. default: what is prepared where nobody says. fingerprints: of one, by which
    what was measured on it is found.
    """

    on: type
    words: str
    count: Callable[[Any], int]
    name: Callable[[Any], str]
    default: str
    fingerprints: Callable[[Any], tuple[str, ...]] = lambda structure: ()


KINDS: dict[type, Kind] = {}
PREPARED: dict[str, Prepared] = {}
"""Prepared operators by name."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A call of an operator that has a name of its own.

    operator: what it calls. on: the class of its structure. width: names of the numbers that a width of it is made of.
    short: what one number alone stands for, in words; "" where it is no width. shapes: structure and width to the
    shapes of the operands, all of which want gradients. call: the user's own, on structure and operands. form: the
    message whose plans are measured; None where there is one plan, by rules. divided: whether the last number divides
    the others. transposes: whether the backward pass goes over the transpose of a graph. explain: (structure, width,
    dtype, backward) to something that prints why it runs as it does; None where ``form`` says all. few: (width, dtype)
    makes what layers run in its place on a few edges (`ops.message.flat`). scheduled: the operators of ``gsb.schedule``
    whose kernels it runs.
    """

    name: str
    operator: Operator
    on: type
    width: tuple[str, ...]
    short: str
    shapes: Shapes
    call: Callable[..., Tensor]
    form: Any = None
    divided: bool = False
    transposes: bool = True
    explain: Callable[..., Any] | None = None
    few: Callable[[Width, torch.dtype], Any] | None = None
    scheduled: tuple[str, ...] = ()

    def widths(self, given: Any) -> tuple[Width, ...]:
        """``given`` as widths: one, or several in a list; in a tuple too, where it is none itself. ValueError quotes
        what is none.
        """
        one = isinstance(given, int) or (
            len(self.width) > 1 and isinstance(given, tuple) and all(isinstance(n, int) for n in given)
        )
        apart = (not one and hasattr(given, "__iter__") and not isinstance(given, str)) or given == ()
        several = tuple(given) if apart else (given,)
        found = tuple(dict.fromkeys(self._width(each) for each in several))
        if not found:
            raise ValueError(f"features names no width for {self.name}: give {self._wanted}")
        return found

    def _width(self, given: Any) -> Width:
        numbers = (given,) if isinstance(given, int) else tuple(given) if isinstance(given, (tuple, list)) else ()
        fits = len(numbers) == len(self.width) or (len(numbers) == 1 and bool(self.short))
        if not fits or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers):
            raise ValueError(
                f"features of {self.name} must be {self._wanted}, of positive whole numbers, got {given!r}"
            )
        if self.divided and any(n % numbers[-1] for n in numbers[:-1]):
            raise ValueError(f"features of {self.name}: {self.width[-1]} must divide the others, got {given!r}")
        return numbers[0] if len(numbers) == 1 else numbers

    @property
    def _wanted(self) -> str:
        if len(self.width) == 1:
            return self.width[0]
        return f"({', '.join(self.width)})" + (f", or {self.short}" if self.short else "")


def structures(kind: Kind) -> None:
    """Let operators be prepared on structures of this kind."""
    KINDS[kind.on] = kind


def prepares(*calls: Prepared) -> None:
    """Let ``precompile`` and ``explain`` know these."""
    PREPARED.update({call.name: call for call in calls})


def pair(width: Width) -> tuple[int, int]:
    """(F_in, F_out), where one number stands for both."""
    return (width, width) if isinstance(width, int) else (width[0], width[1])
