"""Results of which a row is summed in a workspace, since its elements are not met in order (Kjolstad et al., CGO 2019).

Threads have a share of the rows and a workspace each, a value for every column. Which columns a row has is marked by
its number, so that no marks are cleared between rows. A short row is listed and its elements ranked, each by how many
columns of the list are smaller; of a long one, which would take more comparisons than there are columns, blocks of
columns that were touched are looked through. How long a row is has been counted before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....compiler import Axis, both, either, equal, number, select
from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr
from ..declared import Written
from ..terms import Term
from ..walks import At
from .assembly import COUNT, Assembly

BLOCK = 8
"""Columns that are looked at together."""
ALWAYS_RANKED = 64
"""Elements of a row up to which all pairs are compared, however few columns there are."""
COLUMNS_OF_A_PAIR = 2
"""Columns that are looked through, by blocks, in the time of comparing two elements."""
FIRST, SHARES = "first", "shares"


class Workspace(Assembly):
    """Either program of such a result."""

    def run(self) -> Written:
        """The program."""
        self.group, self.columns = self.axis("groups"), self.axis("columns")
        count = self.size("rows")
        rows = self.p.dense_variable(self.fresh("R"), self.group, (count, count), self.array(SHARES), "int64")
        self.declare_result((self.group, rows))
        first = self.p.buffer(self.named("First", FIRST), (self.group,), "int64")
        stamps = self.index_dtype if len(self.above) == 1 else "int64"
        self.mark = self.workspace("Mark", self.columns, stamps)
        if self.filling:
            self.blocks = self.axis("blocks")
            self.touched = self.workspace("Touched", self.blocks, stamps)
            self.work = self.workspace("Work", self.columns, self.dtype)
            self.listed = self.workspace("List", self.columns, self.index_dtype)
            self.others = self.elements_of(rows)
            self.lane = self.p.dense_fixed(self.fresh("Lane"), BLOCK)
            self.count = self.p.buffer(self.named("Count", COUNT), (self.group, rows), "int64")
        names = [self.fresh(name) for name in "gr"]
        with self.p.iterate(self.fresh("Shares"), (self.group,), "S", names[:1]) as (g,):
            self.clear(self.mark, self.columns, g)
            if self.filling:
                self.clear(self.touched, self.blocks, g)
            with self.p.iterate(self.fresh("Row"), (rows,), "S", names[1:]) as (r,):
                self.summed(g, r, first[g] + r)
        return self.written(self.own)

    def workspace(self, name: str, axis: Axis, dtype: str) -> BufferHandle:
        return self.p.temporary(self.fresh(name), (self.group, axis), dtype)

    def clear(self, buffer: BufferHandle, axis: Axis, g: Expr) -> None:
        with self.p.iterate(self.fresh("cleared"), (axis,), "S", (self.fresh("z"),)) as (z,):
            buffer[g, z] = 0

    def indices_of(self, row: Expr) -> At:
        """The indices of a row, from its number."""
        at: dict[str, Expr] = {}
        for index in reversed(self.above[1:]):
            length = number(self.index_axes[index].length)
            at[index], row = row % length, row // length
        return at | dict.fromkeys(self.above[:1], row)

    def summed(self, g: Expr, r: Expr, row: Expr) -> None:
        """Sum a row, and write it in order or count its elements."""
        at, stamp = self.indices_of(row), row + 1
        if not self.filling:
            seen = self.local("At", 0)
            self.walked(at, partial(self.count_in, g, stamp, seen))
            self.count[g, r] = seen[0]
            return
        length = self.count[g, r]
        compared, most = length * length * COLUMNS_OF_A_PAIR, number(self.columns.length)
        short = either(length <= ALWAYS_RANKED, compared <= most)
        long = both(length > ALWAYS_RANKED, compared > most)
        for kind, condition, fill in (("Short", short, self.ranked), ("Long", long, self.looked_through)):
            with self.p.iterate(self.fresh(kind), (self.one,), "S", (self.fresh("o"),)):
                self.p.where(condition)
                fill(g, r, stamp, at)

    def walked(self, at: At, product: Callable[[Term, At], None]) -> None:
        """Every product of a row."""
        for term in self.terms:
            left = [i for i in self.order.indices if i not in at and (i in term.indices or i == self.last)]
            self.walks.nest([term], left, at, partial(product, term))

    def count_in(self, g: Expr, stamp: Expr, seen: BufferHandle, term: Term, at: At) -> None:
        column = at[self.last]
        seen[0] = seen[0] + select(equal(self.mark[g, column], stamp), number(0), number(1))
        self.mark[g, column] = stamp

    def add(self, g: Expr, stamp: Expr, seen: BufferHandle | None, term: Term, at: At) -> None:
        """Add a product to its column; list it where `seen` counts those that are listed."""
        column = at[self.last]
        known = equal(self.mark[g, column], stamp)
        before = select(known, self.work[g, column], self.constant(0))
        self.work[g, column] = before + self.walks.value(term, at)
        if seen is None:
            self.touched[g, column // BLOCK] = stamp
        else:
            self.listed[g, seen[0]] = column  # the next one takes its place, if it was known
            seen[0] = seen[0] + select(known, number(0), number(1))
        self.mark[g, column] = stamp

    def ranked(self, g: Expr, r: Expr, stamp: Expr, at: At) -> None:
        self.walked(at, partial(self.add, g, stamp, self.local("At", 0)))
        names = [self.fresh(name) for name in "pq"]
        with self.p.iterate(self.fresh("Ranked"), (self.elements,), "S", names[:1]) as (p,):
            rank = self.local("Rank", 0)
            with self.p.iterate(self.fresh("Smaller"), (self.others,), "R", names[1:]) as (q,):
                smaller = self.listed[g, q] < self.listed[g, p]
                rank[0] = rank[0] + select(smaller, number(1), number(0))
            column = self.listed[g, p]
            self.write((g, r, rank[0]), column, self.work[g, column])

    def looked_through(self, g: Expr, r: Expr, stamp: Expr, at: At) -> None:
        self.walked(at, partial(self.add, g, stamp, None))
        placed = self.local("Placed", 0)
        with self.p.iterate(self.fresh("Looked"), (self.blocks,), "S", (self.fresh("b"),)) as (b,):
            self.p.where(equal(self.touched[g, b], stamp))
            with self.p.iterate(self.fresh("Lanes"), (self.lane,), "S", (self.fresh("c"),)) as (c,):
                column = b * BLOCK + c
                self.listed[g, placed[0]] = column  # without a branch: the next one takes its place, if it is not there
                placed[0] = placed[0] + select(equal(self.mark[g, column], stamp), number(1), number(0))
        with self.p.iterate(self.fresh("Found"), (self.elements,), "S", (self.fresh("p"),)) as (p,):
            column = self.listed[g, p]
            self.write((g, r, p), column, self.work[g, column])
