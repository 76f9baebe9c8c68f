"""Results that are stored sparse, at coordinates that no operand has: first counted, then filled.

Both programs visit the same elements, the first to count those of each row of the result, the second to write them
where the sums of these counts say. Rows are independent of each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....compiler import Axis, Size, equal, number
from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, ExprLike
from ..declared import Declared, Written
from ..loops.places import Env
from ..notation import Statement
from ..terms import Operand, Term
from ..walks import Walks
from .order import Order

COUNT, OFFSETS, INDICES, VALUES, PLACE = "count", "offsets", "indices", "", "place"
FIRST, SHARES = "first", "shares"
"""What a parameter is that no operand has."""
Row = tuple[Expr, ...]
"""What stands for a row in an access."""
ROW = "row@"
"""The name of the number of a row among what is bound."""


class Assembly(Declared):
    """The program that counts the elements of a result's rows, or that fills them.

    Args:
        order: with the indices of the result in the order of its levels: rows by all but the last.
        dtype: of the result.
        index_dtype: of the result's offsets and coordinates.
        filling: write them; otherwise count them.
    """

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
        super().__init__("fill" if filling else "count", statement, operands, dtype, order.static)
        self.terms, self.order, self.filling, self.index_dtype = terms, order, filling, index_dtype
        *self.above, self.last = order.result
        self.own: dict[str, str] = {}
        self.declare(terms, walked=True)
        self.walks = Walks(self, terms, order.graph, order.unrolled)

    def run(self) -> Written:
        """The program."""
        rows = self.rows()
        self.declare_result((rows,))
        if self.order.listed or not self.above:
            with self.p.iterate(self.fresh("Row"), (rows,), "S", (self.fresh("r"),)) as (row,):
                self.row((row,), self.indices_of(row))
            return self.written(self.own)
        if not self.filling:  # some rows may not be visited
            self.clear(self.count)
        self.walks.nest(self.terms, self.order.rows, Env(), lambda at: self.row((self.row_of(at),), at))
        return self.written(self.own)

    def rows(self) -> Axis:
        """The axis of the rows of the result."""
        if len(self.above) == 1 and not self.order.listed:
            return self.index_axes[self.above[0]]
        return self.axis("rows") if self.above else self.p.dense_fixed(self.fresh("Rows"), 1)

    def axis(self, what: str) -> Axis:
        """An axis whose length is given at each call."""
        return self.p.dense_fixed(self.fresh(what.capitalize()), self.size(what))

    def size(self, what: str) -> Size:
        """A size that is given at each call."""
        made = self.p.size(self.fresh(f"n_{what}"))
        self.sizes[made.name] = (what,)
        return made

    def array(self, what: str) -> str:
        """An index array that is given at each call."""
        name = self.fresh(what)
        self.arrays[name] = (-1, 0, what)
        return name

    def shares(self) -> tuple[Axis, Axis, BufferHandle]:
        """Shares of the rows, one for each thread; the rows of a share, and the number of its first. Where rows are
        visited otherwise than one after the other, these are values of the outermost loop."""
        group, count = self.axis("groups"), self.size("turns")
        rows = self.p.dense_variable(self.fresh("R"), group, (count, count), self.array(SHARES), "int64")
        return group, rows, self.p.buffer(self.named("First", FIRST), (group,), "int64")

    def declare_result(self, rows: tuple[Axis, ...]) -> None:
        """The counts of rows, or offsets, coordinates and values; rows: their axis, and those above it."""
        if self.order.listed:
            self.places = [
                self.p.buffer(self.named("Place", f"{PLACE}{n}"), rows[-1:], "int64") for n in range(len(self.above))
            ]
        if not self.filling:
            self.count = self.p.buffer(self.named("Count", COUNT), rows, "int64")
            return
        self.elements = self.elements_of(rows[-1])
        self.indices = self.p.buffer(self.named("indices", INDICES), (*rows, self.elements), self.index_dtype)
        name = self.statement.result.name
        self.own[name] = VALUES
        self.values = self.p.buffer(name, (*rows, self.elements), self.dtype)

    def elements_of(self, rows: Axis) -> Axis:
        """The axis of the elements of a row; one for each loop over them."""
        extent = self.index_axes[self.last].length, self.size("elements")
        return self.p.dense_variable(self.fresh("P"), rows, extent, self.array(OFFSETS), self.index_dtype)

    def named(self, wanted: str, what: str) -> str:
        name = self.fresh(wanted)
        self.own[name] = what
        return name

    def row_of(self, at: Env) -> Expr:
        """The number of a row."""
        if ROW in at.known:
            return at.known[ROW]
        first, *others = self.above
        found = at.known[first]
        for index in others:
            found = found * number(self.index_axes[index].length) + at.known[index]
        return found

    def indices_of(self, row: Expr) -> Env:
        """The indices of a row, from its number, and that."""
        at: dict[str, Expr] = {ROW: row}
        if self.order.listed:
            return Env(at | {index: self.read_once(place[row]) for index, place in zip(self.above, self.places)})
        for index in reversed(self.above[1:]):
            length = number(self.index_axes[index].length)
            at[index], row = row % length, row // length
        return Env(at | dict.fromkeys(self.above[:1], row))

    def read_once(self, coordinate: Expr) -> Expr:
        """What is not read anew behind each store: to LLVM, a workspace may lie where an index array does."""
        return self.local("Here", coordinate)[0]

    def row(self, row: Row, at: Env) -> None:
        """A row, element by element."""
        placed = self.local("At", 0)
        self.walks.nest(self.terms, self.order.columns, at, lambda bound: self.element(row, placed, bound))
        if not self.filling:
            self.count[row] = placed[0]

    def element(self, row: Row, placed: BufferHandle, at: Env) -> None:
        if all(set(term.indices) <= set(at.known) for term in self.terms):
            self.place(row, placed, at.known[self.last], self.walks.sum(self.terms, at) if self.filling else None)
            return
        seen = self.local("Seen", 0)
        total = self.walks.total(self.terms, self.order.loops, at, seen)
        with self.once(equal(seen[0], 1)):
            self.place(row, placed, at.known[self.last], total)

    def place(self, row: Row, placed: BufferHandle, coordinate: Expr, value: Expr | None) -> None:
        """The next element of a row."""
        if self.filling:
            assert value is not None
            self.write((*row, placed[0]), coordinate, value)
        placed[0] = placed[0] + 1

    def write(self, where: Row, coordinate: Expr, value: Expr) -> None:
        self.indices[where] = coordinate
        self.values[where] = value

    def local(self, name: str, value: ExprLike) -> BufferHandle:
        found = self.p.local(self.fresh(name), (self.one,), "int64")
        found[0] = value
        return found
