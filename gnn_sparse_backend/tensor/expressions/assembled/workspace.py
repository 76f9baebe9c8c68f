"""Results of which a row is summed in a workspace, since its elements are not met in order (Kjolstad et al., CGO 2019).

Threads have a share of the rows and a workspace each, a value for every column, which is zero between rows. Which
columns a row has is kept as sets of `WORD` columns, a bit for each, and which of these sets have any as sets of sets;
going through the bits in order gives the columns in order. A row that is short for so many sets is listed instead and
its elements ranked, each by how many columns of the list are smaller. How long a row is has been counted before. Short
rows of wide results are summed in a table of their own (`hashed.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from ....compiler import Axis, both, differ, either, equal, number, select
from ....compiler.language import bits
from ....compiler.language.axes import Extent, given
from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr
from ..declared import Written
from ..terms import Term
from ..walks import At
from .assembly import COUNT, Assembly
from .hashed import MOST, WIDE, Table

WORD = 32
"""Columns of a set: bits of a word."""
PAIRS = 12
"""Elements are compared in so many pairs in the time of looking at one set of sets."""


class Workspace(Assembly):
    """Either program of such a result."""

    def run(self) -> Written:
        """The program."""
        self.group, turns, first = self.shares()
        self.every = self.axis("rows")
        self.columns = self.axis("columns")
        self.declare_result((self.every,))
        self.hashed = Table(self, self.workspace, self.filling)
        if self.filling:
            self.words = self.workspace("Words", self.axis("words"), "uint32")
            self.sets_above = self.axis("above")
            self.above_words = self.workspace("Above", self.sets_above, "uint32")
            self.work = self.workspace("Work", self.columns, self.dtype)
            self.listed = self.workspace("List", self.columns, self.index_dtype)
            self.others = self.elements_of(self.every)
            self.lane = self.p.dense_fixed(self.fresh("Bit"), WORD)
            self.count = self.p.buffer(self.named("Count", COUNT), (self.every,), "int64")
            cleared: tuple[BufferHandle, ...] = self.words, self.above_words, self.work
        else:
            self.mark = self.workspace("Mark", self.columns, self.index_dtype if len(self.above) == 1 else "int64")
            cleared = (self.mark,)
            if self.order.is_cut:
                self.clear_counts(self.every)
        names = [self.fresh(name) for name in "gr"]
        with self.p.iterate(self.fresh("Shares"), (self.group,), "S", names[:1]) as (g,):
            for buffer in cleared:
                self.clear(buffer, g)
            self.hashed.begin(g)
            with self.p.iterate(self.fresh("Row"), (turns,), "S", names[1:]) as (r,):
                self.turn(self.read_once(first[g] + r), partial(self.summed, g))
        return self.written(self.own)

    def turn(self, turn: Expr, row: Callable[[At], None]) -> None:
        """A row, or the rows of a value of the outermost loop."""
        if not self.order.is_cut:
            row(self.indices_of(turn))
            return
        first, *others = self.order.rows
        self.walks.found(self.terms, {first: turn}, lambda at: self.walks.nest(self.terms, others, at, row))

    def workspace(self, name: str, axis: Axis, dtype: str) -> BufferHandle:
        return self.p.temporary(self.fresh(name), (self.group, axis), dtype)

    def clear(self, buffer: BufferHandle, g: Expr) -> None:
        with self.p.iterate(self.fresh("cleared"), buffer.value.axes[1:], "S", (self.fresh("z"),)) as (z,):
            buffer[g, z] = 0

    def summed(self, g: Expr, at: At) -> None:
        """Sum a row, and write it in order or count its elements."""
        row = self.row_of(at)
        if not self.filling:
            self.counted(g, row, at)
            return
        here = ((self.every, row, row + 1, "coordinate", 1),)
        with self.p.iterate(self.fresh("Here"), (self.every,), "S", (self.fresh("h"),), bounds=here) as (h,):
            self.filled(g, h, at)

    def counted(self, g: Expr, row: Expr, at: At) -> None:
        """By hashing, and if there are too many for it, by marks."""
        seen, left = self.local("At", 0), self.local("Left", 1)
        with self.once(self.wide):
            self.walked(at, partial(self.hash_in, g, seen))
            with self.hashed.entry(self.hashed.entries, "S", seen[0]) as q:
                self.hashed.leave(g, q)
            left[0] = select(seen[0] > MOST, number(1), number(0))
        with self.once(equal(left[0], 1)):
            seen[0] = 0
            self.walked(at, partial(self.count_in, g, row + 1, seen))
        self.count[row] = seen[0]

    def filled(self, g: Expr, r: Expr, at: At) -> None:
        """In the cheapest of three ways."""
        count = self.count[r]
        pairs, cheap = count * count, number(self.sets_above.length) * PAIRS
        few = both(self.wide, count <= MOST)
        many = either(number(self.extent) <= WIDE, count > MOST)
        for kind, condition, fill in (
            ("Hashed", few, self.from_table),
            ("Short", both(many, pairs <= cheap), self.ranked),
            ("Long", both(many, pairs > cheap), self.from_sets),
        ):
            with self.once(condition, kind):
                fill(g, r, at)

    @property
    def extent(self) -> Extent:
        return self.index_axes[self.last].length

    @property
    def wide(self) -> Expr:
        return number(self.extent) > WIDE

    def walked(self, at: At, product: Callable[[Term, At], None]) -> None:
        """Every product of a row."""
        for term in self.terms:
            mine = {*term.indices, self.last}
            left = [loop for loop in self.order.loops if loop not in at and self.walks.parts(loop) & mine]
            self.walks.nest([term], left, at, partial(product, term))

    def count_in(self, g: Expr, stamp: Expr, seen: BufferHandle, term: Term, at: At) -> None:
        column = self.read_once(at[self.last])
        seen[0] = seen[0] + select(equal(self.mark[g, column], stamp), number(0), number(1))
        self.mark[g, column] = stamp

    def hash_in(self, g: Expr, seen: BufferHandle, term: Term, at: At) -> None:
        with self.once(seen[0] <= MOST):
            self.hashed.found(g, self.read_once(at[self.last]), seen)

    def add_hashed(self, g: Expr, seen: BufferHandle, term: Term, at: At) -> None:
        sums = given(self.hashed.sums)
        found = self.hashed.found(g, self.read_once(at[self.last]), seen)
        sums[g, found] = sums[g, found] + self.walks.value(term, at)

    def add(self, g: Expr, seen: BufferHandle | None, term: Term, at: At) -> None:
        """Add a product to its column, and the column to the row's set; list it where `seen` counts what is listed."""
        column = self.read_once(at[self.last])
        word, bit = column // WORD, bits.bit(column % WORD)
        self.work[g, column] = self.work[g, column] + self.walks.value(term, at)
        if seen is not None:
            self.listed[g, seen[0]] = column  # the next one takes its place, if it was known
            seen[0] = seen[0] + select(equal(bits.bit_and(self.words[g, word], bit), 0), number(1), number(0))
        else:
            self.above_words[g, word // WORD] = bits.bit_or(self.above_words[g, word // WORD], bits.bit(word % WORD))
        self.words[g, word] = bits.bit_or(self.words[g, word], bit)

    def from_table(self, g: Expr, r: Expr, at: At) -> None:
        table = self.hashed
        self.walked(at, partial(self.add_hashed, g, self.local("At", 0)))
        with self.ranks(lambda p: table.keys[g, p + 1]) as (p, rank):
            self.write((r, rank), table.keys[g, p + 1], given(table.sums)[g, p + 1])
            table.leave(g, p + 1)

    def ranked(self, g: Expr, r: Expr, at: At) -> None:
        self.walked(at, partial(self.add, g, self.local("At", 0)))
        with self.ranks(lambda p: self.listed[g, p]) as (p, rank):
            column = self.read_once(self.listed[g, p])
            self.taken((r, rank), g, column)
            self.words[g, column // WORD] = 0

    @contextmanager
    def ranks(self, column: Callable[[Expr], Expr]) -> Iterator[tuple[Expr, Expr]]:
        """The number of each element in a list of columns, and how many columns are smaller."""
        names = [self.fresh(name) for name in "pq"]
        with self.p.iterate(self.fresh("Ranked"), (self.elements,), "S", names[:1]) as (p,):
            rank = self.local("Rank", 0)
            with self.p.iterate(self.fresh("Smaller"), (self.others,), "R", names[1:]) as (q,):
                rank[0] = rank[0] + select(column(q) < column(p), number(1), number(0))
            yield p, rank[0]

    def from_sets(self, g: Expr, r: Expr, at: At) -> None:
        self.walked(at, partial(self.add, g, None))
        placed = self.local("Placed", 0)
        with self.p.iterate(self.fresh("Looked"), (self.sets_above,), "S", (self.fresh("s"),)) as (s,):
            self.p.where(differ(self.above_words[g, s], 0))
            with self.members(self.above_words, g, s) as word, self.members(self.words, g, word) as column:
                self.taken((r, placed[0]), g, column)
                placed[0] = placed[0] + 1

    @contextmanager
    def members(self, sets: BufferHandle, g: Expr, at: Expr) -> Iterator[Expr]:
        """The members of a set, which it loses: `WORD * at` and the places of its bits."""
        with self.once():
            left = self.local("Left", 0)
            left[0] = sets[g, at]
            sets[g, at] = 0
            count = bits.bit_count(left[0])
            with self.p.iterate(
                self.fresh("Members"), (self.lane,), "S", (self.fresh("b"),), bounds=((self.lane, 0, count),)
            ):
                member = self.local("Member", 0)
                member[0] = at * WORD + bits.trailing_zeros(left[0])
                left[0] = bits.without_lowest(left[0])
                yield member[0]

    def taken(self, place: tuple[Expr, ...], g: Expr, column: Expr) -> None:
        """Write the sum of a column, and leave zero there for the next row."""
        self.write(place, column, self.work[g, column])
        self.work[g, column] = self.constant(0)
