"""Results whose elements are met in order and are no more than operands have: written in one walk, and not counted.

Threads have a share of the rows and room for as many elements as its operands store, which they fill from its
beginning. What they leave free is closed when all are done, which is to move few and long pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....compiler import Axis
from ..declared import Written
from ..loops.places import Env
from ..notation import Access
from ..terms import Operand, Term, along
from .assembly import Assembly
from .order import Order

ROOM, PLACES, ENDS = "room", "places", "ends"


def limits(terms: Sequence[Term], operands: Mapping[str, Operand], order: Order) -> tuple[tuple[str, ...], ...]:
    """For each term the operands of which each has at least as many elements in a row of the result; else ().

    They store rows as the result does: a dense level, and a compressed one under it.
    """
    if order.workspace or order.is_cut or order.listed or len(order.result) != 2:
        return ()

    def limit(access: Access) -> bool:
        format = operands[access.name].format
        rowwise = format.levels[:2] == ("dense", "compressed") and not format.masked
        return rowwise and along(access, format)[:2] == order.result

    found = tuple(
        tuple(f.of.name for f in term.factors if isinstance(f.of, Access) and not f.inverse and limit(f.of))
        for term in terms
    )
    return found if all(found) else ()


class Appended(Assembly):
    """The program of such a result."""

    def run(self) -> Written:
        """The program."""
        group, rows, first = self.shares()
        self.declare_result((group,))
        ends = self.p.buffer(self.named("Ends", ENDS), (group, rows), self.index_dtype)
        names = [self.fresh(name) for name in "gr"]
        with self.p.iterate(self.fresh("Shares"), (group,), "S", names[:1]) as (g,):
            placed = self.local("At", 0)
            with self.p.iterate(self.fresh("Row"), (rows,), "S", names[1:]) as (r,):
                at = Env({self.above[0]: first[g] + r})
                self.walks.nest(self.terms, self.order.columns, at, lambda bound: self.element((g,), placed, bound))
                ends[g, r] = placed[0]
        return self.written(self.own)

    def elements_of(self, rows: Axis) -> Axis:
        """The room of a share."""
        places = self.size(PLACES)
        return self.p.dense_variable(self.fresh("P"), rows, (places, places), self.array(ROOM), "int64")
