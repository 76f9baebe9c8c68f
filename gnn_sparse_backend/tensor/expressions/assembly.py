"""Results that are stored sparse, at coordinates that no operand has: first counted, then filled.

Both programs visit the same elements, the first to count those of each row of the result, the second to write them
where the sums of these counts say. Rows are independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...compiler import Axis, equal, number, select
from ...compiler.language.expr import Expr
from .declared import Declared, Written
from .notation import Statement
from .order import Order
from .result import accumulator
from .terms import Operand, Term
from .walks import At, Walks

BLOCK = 64
"""Columns of a workspace that are looked at together."""
COUNT, OFFSETS, INDICES, VALUES = "count", "offsets", "indices", ""
"""What a parameter is that no operand has."""


def write_assembled(
    statement: Statement,
    terms: tuple[Term, ...],
    operands: Mapping[str, Operand],
    order: Order,
    dtype: str,
    index_dtype: str,
) -> tuple[Written, Written]:
    """The programs that count and that fill a result, which is stored in rows of ascending coordinates.

    Args:
        order: with the indices of the result in the order of its levels: rows by all but the last.
        dtype: of the result, which is left in `accumulator(dtype)`.
        index_dtype: of its offsets and coordinates.
    """
    count, fill = (
        _Rows(statement, terms, operands, order, accumulator(dtype), index_dtype, filling).run()
        for filling in (False, True)
    )
    return count, fill


class _Rows(Declared):
    def __init__(
        self,
        statement: Statement,
        terms: tuple[Term, ...],
        operands: Mapping[str, Operand],
        order: Order,
        dtype: str,
        index_dtype: str,
        filling: bool,
    ) -> None:
        super().__init__("fill" if filling else "count", statement, operands, dtype, {})
        self.terms, self.order, self.filling, self.index_dtype = terms, order, filling, index_dtype
        self.own: dict[str, str] = {}

    def run(self) -> Written:
        self.declare(self.terms, walked=True)
        self.walks = Walks(self, self.terms)
        *above, self.last = self.order.result
        rows = self.index_axes[above[0]] if len(above) == 1 else self.numbered_rows(above)
        self.count_of_rows = rows.length
        self.declare_result(rows)
        if self.order.workspace:
            self.workspace(above)
        elif above:
            self.clear(rows)
            self.walks.nest(self.terms, above, {}, lambda at: self.row(self.row_of(above, at), at))
        else:
            with self.p.iterate(self.fresh("Row"), (rows,), "S", (self.fresh("r"),)) as (row,):
                self.row(row, {})
        return self.written(self.own)

    def numbered_rows(self, above: list[str]) -> Axis:
        """The axis of rows that no single index counts."""
        return self.axis("rows") if above else self.p.dense_fixed(self.fresh("Rows"), 1)

    def declare_result(self, rows: Axis) -> None:
        name = self.statement.result.name
        if not self.filling:
            self.count = self.p.buffer(self.named("Count", COUNT), (rows,), "int64")
            return
        size = self.p.size(self.fresh("elements"))
        self.sizes[size.name] = ("elements",)
        offsets = self.fresh("offsets")
        self.arrays[offsets] = (-1, 0, OFFSETS)
        extent = self.index_axes[self.last].length, size
        element = self.p.dense_variable(self.fresh("P"), rows, extent, offsets, self.index_dtype)
        self.indices = self.p.buffer(self.named("indices", INDICES), (rows, element), self.index_dtype)
        self.own[name] = VALUES
        self.values = self.p.buffer(name, (rows, element), self.dtype)

    def named(self, wanted: str, what: str) -> str:
        name = self.fresh(wanted)
        self.own[name] = what
        return name

    def clear(self, rows: Axis) -> None:
        """No elements in rows that are not visited."""
        if not self.filling:
            with self.p.iterate(self.fresh("clear"), (rows,), "S", (self.fresh("z"),)) as (row,):
                self.count[row] = 0

    def row_of(self, above: list[str], at: At) -> Expr:
        """The number of a row."""
        found: Expr | None = None
        for index in above:
            found = at[index] if found is None else found * number(self.index_axes[index].length) + at[index]
        assert found is not None
        return found

    # A row, element by element.

    def row(self, row: Expr, at: At) -> None:
        placed = self.local("At", 0)
        self.walks.nest(self.terms, (self.last,), at, lambda bound: self.element(row, placed, bound))
        if not self.filling:
            self.count[row] = placed[0]

    def element(self, row: Expr, placed: Any, at: At) -> None:
        if all(set(term.indices) <= set(at) for term in self.terms):
            self.place(row, placed, at, self.walks.sum(self.terms, at) if self.filling else None)
            return
        seen = self.local("Seen", 0)
        total = self.walks.total(self.terms, self.order.indices, at, seen)
        with self.p.iterate(self.fresh("once"), (self.one,), "S", (self.fresh("o"),)):
            self.p.where(equal(seen[0], 1))
            self.place(row, placed, at, total)

    def place(self, row: Expr, placed: Any, at: At, value: Expr | None) -> None:
        """The next element of a row."""
        if self.filling:
            assert value is not None
            self.indices[row, placed[0]] = at[self.last]
            self.values[row, placed[0]] = value
        placed[0] = placed[0] + 1

    def local(self, name: str, value: int) -> Any:
        found = self.p.local(self.fresh(name), (self.one,), "int64")
        found[0] = value
        return found

    # A row in a workspace: which columns it has is marked by its number, so that nothing is cleared between rows.

    def workspace(self, above: list[str]) -> None:
        group, turn, lane = self.axis("groups"), self.axis("turns"), self.p.dense_fixed(self.fresh("Lane"), BLOCK)
        block, wide = self.axis("blocks"), self.axis("columns")
        dtype = self.index_dtype if len(above) < 2 else "int64"
        self.mark = self.p.temporary(self.fresh("Mark"), (group, wide), dtype)
        if self.filling:
            self.touched = self.p.temporary(self.fresh("Touched"), (group, block), dtype)
            self.work = self.p.temporary(self.fresh("Work"), (group, wide), self.dtype)
        names = [self.fresh(name) for name in "gq"]
        with self.p.iterate(self.fresh("Share"), (group,), "S", names[:1]) as (g,):
            for buffer, axis in ((self.mark, wide), *(((self.touched, block),) if self.filling else ())):
                with self.p.iterate(self.fresh("unmarked"), (axis,), "S", (self.fresh("z"),)) as (z,):
                    buffer[g, z] = 0
            # rows are dealt out in turns: those that lie side by side are often of one size
            with self.p.iterate(self.fresh("Turn"), (turn,), "S", names[1:]) as (q,):
                row = q * number(group.length) + g
                self.p.where(row < number(self.count_of_rows))
                self.row_in_workspace(g, row, self.unravelled(above, row), block, lane)

    def axis(self, what: str) -> Axis:
        size = self.p.size(self.fresh(f"n_{what}"))
        self.sizes[size.name] = (what,)
        return self.p.dense_fixed(self.fresh(what.capitalize()), size)

    def unravelled(self, above: list[str], row: Expr) -> At:
        """The indices of a row, from its number."""
        at: dict[str, Expr] = {}
        for index in reversed(above[1:]):
            length = number(self.index_axes[index].length)
            at[index], row = row % length, row // length
        return at | dict.fromkeys(above[:1], row)

    def row_in_workspace(self, g: Expr, row: Expr, at: At, block: Axis, lane: Axis) -> None:
        stamp = row + 1
        placed = self.local("At", 0)

        def touch(term: Term, bound: At) -> None:
            here = g, bound[self.last]
            known = equal(self.mark[here], stamp)
            if self.filling:
                before = select(known, self.work[here], self.constant(0))
                self.work[here] = before + self.walks.value(term, bound)
                self.touched[g, bound[self.last] // BLOCK] = stamp
            else:
                placed[0] = placed[0] + select(known, number(0), number(1))
            self.mark[here] = stamp

        for term in self.terms:
            left = [i for i in self.order.indices if i not in at and (i in term.indices or i == self.last)]
            self.walks.nest([term], left, at, partial(touch, term))
        if not self.filling:
            self.count[row] = placed[0]
            return
        with self.p.iterate(self.fresh("Seen"), (block,), "S", (self.fresh("b"),)) as (b,):
            self.p.where(equal(self.touched[g, b], stamp))
            with self.p.iterate(self.fresh("Lanes"), (lane,), "S", (self.fresh("c"),)) as (c,):
                column = b * BLOCK + c
                self.p.where(equal(self.mark[g, column], stamp))
                self.place(row, placed, {self.last: column}, self.work[g, column])
