"""The programs that put a result together: one that counts and one that fills, or one that does both in a walk."""

from __future__ import annotations

from collections.abc import Mapping

from ....compiler.language.expr import Expr
from ....compiler.schedules.cpu import cpu_schedule
from ....compiler.schedules.primitives.shared.whole import whole_or_part
from ....compiler.schedules.sequence import Schedule
from ....frozen import dataclass
from ..declared import Written
from ..loops.places import Env
from ..notation import Statement
from ..terms import Operand, Term
from .appended import Appended, limits
from .assembly import Assembly
from .order import Order
from .workspace import Workspace


@dataclass(frozen=True)
class Assembling:
    """One of them.

    Attributes:
        index_dtype: of the offsets and coordinates of the result.
        limits: how long its rows can be, where it does both.
        unrolled: iterations whose elements are written out.
        turns: how many values the outermost loop has that is shared out; None where it is one over the rows.
    """

    written: Written
    index_dtype: str
    limits: tuple[tuple[str, ...], ...]
    unrolled: tuple[str, ...]
    turns: Expr | None

    def schedule(self, parallel: bool) -> Schedule:
        """What its loops run on."""
        return cpu_schedule(*(whole_or_part(name, "unrolled") for name in self.unrolled), parallel=parallel)


def assemblies(
    statement: Statement, terms: tuple[Term, ...], operands: Mapping[str, Operand], dtype: str, order: Order
) -> tuple[Assembling, ...]:
    """The program that fills a result of this type, behind that which counts where there is one."""
    index_dtype = max(operand.index_dtype for operand in operands.values())
    once = limits(terms, operands, order)
    writer = Appended if once else Workspace if order.workspace else Assembly
    found = []
    for filling in (True,) if once else (False, True):
        made = writer(statement, terms, operands, order, dtype, index_dtype, filling)
        written = made.run()
        turns = made.walks.extents(order.graph, Env()).of(order.rows[0]) if order.is_cut else None
        found.append(Assembling(written, index_dtype, once, tuple(name for name, _ in made.walks.units), turns))
    return tuple(found)
