"""Axes over which the values of variables are counted."""

from __future__ import annotations

from ....compiler import Axis, Size, number
from ....compiler.language.expr import Binary, Expr, Offset
from ....compiler.language.layout import elements
from ....compiler.language.traversal import walk
from ..declared import Declared
from .extents import Extents, constant
from .provenance import maker


class Counters:
    """The axes that variables are counted over in a program that is being written."""

    def __init__(self, writer: Declared) -> None:
        self.w = writer
        self.made: dict[tuple[str, Expr], Axis] = {}

    def axis(self, extents: Extents, variable: str, most: int | None = None) -> Axis:
        """An axis with as many elements as a variable has values, or more."""
        if most is not None:
            return self.w.p.dense_fixed(self.w.fresh(f"X_{variable}"), most)
        if maker(extents.graph, variable) is None:
            return self.w.index_axes[variable]
        extent = at_most(extents.of(variable))
        if (variable, extent) not in self.made:
            length: int | Size | None = constant(extent)
            if length is None:
                length = self.w.p.size(self.w.fresh(f"n_{variable}"))
                self.w.sizes[length.name] = ("extent", extent)
            self.made[variable, extent] = self.w.p.dense_fixed(self.w.fresh(f"X_{variable}"), length)
        return self.made[variable, extent]


def elements_of(axis: Axis) -> Expr:
    """How many elements an axis has in all."""
    count = elements(axis, lambda size: number(size))
    return count if isinstance(count, Expr) else number(count)


def at_most(extent: Expr) -> Expr:
    """An extent that is known before the kernel runs: that of all positions where it differs from row to row."""
    match extent:
        case Binary(op="-", a=Offset(axis=axis, part="end_of")):
            return elements_of(axis)
        case Binary():
            return Binary(extent.op, at_most(extent.a), at_most(extent.b))
    return extent


def varies(extent: Expr) -> bool:
    """Whether it differs from one element above to another."""
    return any(isinstance(e, Offset) for e in walk(extent))
