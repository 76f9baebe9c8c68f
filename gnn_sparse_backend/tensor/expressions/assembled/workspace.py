"""Results of which a row is summed in a workspace, since its elements are not met in order (Kjolstad et al., CGO 2019).

Threads have a share of the rows and a workspace each, a value for every column, which is zero between rows. Which
columns a row has is kept as sets of `WORD` columns, a bit for each, and which of these sets have any as sets of sets;
going through the bits in order gives the columns in order. A row that is short for its number of sets is listed instead
and its elements ranked, each by how many columns of the list are smaller. How long a row is has been counted before.
Short rows of wide results are summed in a table of their own (`hashed.py`).
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
from ..loops.places import Env
from ..terms import Term
from .assembly import COUNT, Assembly
from .hashed import MOST, WIDE, Table

WORD = 32
"""Columns of a set: bits of a word."""
PAIRS = 12
"""Pairs of elements that are compared in the time of looking at one set of sets."""


class Workspace(Assembly):
    """Either program of such a result."""

    def run(self) -> Written:
        """The program."""
        group, turns, first = self.shares()
        self.every = self.axis("rows")
        self.columns = self.axis("columns")
        self.declare_result((self.every,))
        axes = [self.axis(name) for name in (("words", "above") if self.filling else ())]
        if self.filling:
            self.others = self.elements_of(self.every)
            self.lane = self.p.dense_fixed(self.fresh("Bit"), WORD)
            self.count = self.p.buffer(self.named("Count", COUNT), (self.every,), "int64")
        elif self.order.is_cut:
            self.clear(self.count)
        names = [self.fresh(name) for name in "gr"]
        with self.p.iterate(self.fresh("Shares"), (group,), "S", names[:1]) as (g,):
            for buffer in self.workspaces(*axes):
                self.clear(buffer)
            if self.filling:
                self.clear(self.work, self.zero)
            self.hashed = Table(self, self.workspace, self.filling)
            with self.p.iterate(self.fresh("Row"), (turns,), "S", names[1:]) as (r,):
                self.turn(self.read_once(first[g] + r), self.summed)
        return self.written(self.own)

    def turn(self, turn: Expr, row: Callable[[Env], None]) -> None:
        """A row, or the rows of a value of the outermost loop."""
        if not self.order.is_cut:
            row(self.indices_of(turn))
            return
        first, *others = self.order.rows
        outer = self.walks.walk(self.terms, first, lambda at: self.walks.nest(self.terms, others, at, row))
        outer.found(Env(), {first: turn})

    def workspaces(self, words: Axis | None = None, above: Axis | None = None) -> tuple[BufferHandle, ...]:
        """Make those of a thread; and give those that are 0 between rows."""
        if words is None or above is None:
            self.mark = self.workspace("Mark", self.columns, self.index_dtype if len(self.above) == 1 else "int64")
            return (self.mark,)
        self.sets_above = above
        self.words = self.workspace("Words", words, "uint32")
        self.above_words = self.workspace("Above", above, "uint32")
        self.work = self.workspace("Work", self.columns, self.dtype)
        self.listed = self.workspace("List", self.columns, self.index_dtype)
        return self.words, self.above_words

    def workspace(self, name: str, axis: Axis, dtype: str) -> BufferHandle:
        return self.p.local(self.fresh(name), (axis,), dtype)

    def summed(self, at: Env) -> None:
        """Sum a row, and write it in order or count its elements."""
        row = self.row_of(at)
        if not self.filling:
            self.counted(row, at)
            return
        here = ((self.every, row, row + 1, "coordinate", 1),)
        with self.p.iterate(self.fresh("Here"), (self.every,), "S", (self.fresh("h"),), bounds=here) as (h,):
            self.filled(h, at)

    def counted(self, row: Expr, at: Env) -> None:
        """Count the elements of a row by hashing, and if there are too many for it, by marks."""
        seen, left = self.local("At", 0), self.local("Left", 1)
        with self.once(self.wide):
            self.walked(at, partial(self.hash_in, seen))
            with self.hashed.entry(self.hashed.entries, "S", seen[0]) as q:
                self.hashed.leave(q)
            left[0] = select(seen[0] > MOST, number(1), number(0))
        with self.once(equal(left[0], 1)):
            seen[0] = 0
            self.walked(at, partial(self.count_in, row + 1, seen))
        self.count[row] = seen[0]

    def filled(self, r: Expr, at: Env) -> None:
        """Fill a row in the cheapest of three ways."""
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
                fill(r, at)

    @property
    def extent(self) -> Extent:
        return self.index_axes[self.last].length

    @property
    def wide(self) -> Expr:
        return number(self.extent) > WIDE

    def walked(self, at: Env, product: Callable[[Term, Env], None]) -> None:
        """Every product of a row."""
        for term in self.terms:
            mine = {*term.indices, self.last}
            left = [loop for loop in self.order.loops if loop not in at.known and self.walks.parts(loop) & mine]
            self.walks.nest([term], left, at, partial(product, term))

    def count_in(self, stamp: Expr, seen: BufferHandle, term: Term, at: Env) -> None:
        column = self.read_once(at.known[self.last])
        seen[0] = seen[0] + select(equal(self.mark[column], stamp), number(0), number(1))
        self.mark[column] = stamp

    def hash_in(self, seen: BufferHandle, term: Term, at: Env) -> None:
        with self.once(seen[0] <= MOST):
            self.hashed.found(self.read_once(at.known[self.last]), seen)

    def add_hashed(self, seen: BufferHandle, term: Term, at: Env) -> None:
        sums = given(self.hashed.sums)
        found = self.hashed.found(self.read_once(at.known[self.last]), seen)
        self.accumulate(sums, found, self.walks.value(term, at))

    def add(self, seen: BufferHandle | None, term: Term, at: Env) -> None:
        """Add a product to its column, and the column to the row's set; list it where `seen` counts what is listed."""
        column = self.read_once(at.known[self.last])
        word, bit = column // WORD, bits.bit(column % WORD)
        self.accumulate(self.work, column, self.walks.value(term, at))
        if seen is not None:
            self.listed[seen[0]] = column  # the next one takes its place, if it was known
            seen[0] = seen[0] + select(equal(bits.bit_and(self.words[word], bit), 0), number(1), number(0))
        else:
            self.above_words[word // WORD] = bits.bit_or(self.above_words[word // WORD], bits.bit(word % WORD))
        self.words[word] = bits.bit_or(self.words[word], bit)

    def from_table(self, r: Expr, at: Env) -> None:
        table = self.hashed
        self.walked(at, partial(self.add_hashed, self.local("At", 0)))
        with self.ranks(lambda p: table.keys[p + 1]) as (p, rank):
            self.write((r, rank), table.keys[p + 1], given(table.sums)[p + 1])
            table.leave(p + 1)

    def ranked(self, r: Expr, at: Env) -> None:
        self.walked(at, partial(self.add, self.local("At", 0)))
        with self.ranks(lambda p: self.listed[p]) as (p, rank):
            column = self.read_once(self.listed[p])
            self.taken((r, rank), column)
            self.words[column // WORD] = 0

    @contextmanager
    def ranks(self, column: Callable[[Expr], Expr]) -> Iterator[tuple[Expr, Expr]]:
        """The number of each element in a list of columns, and how many columns are smaller."""
        names = [self.fresh(name) for name in "pq"]
        with self.p.iterate(self.fresh("Ranked"), (self.elements,), "S", names[:1]) as (p,):
            rank = self.local("Rank", 0)
            with self.p.iterate(self.fresh("Smaller"), (self.others,), "R", names[1:]) as (q,):
                rank[0] = rank[0] + select(column(q) < column(p), number(1), number(0))
            yield p, rank[0]

    def from_sets(self, r: Expr, at: Env) -> None:
        self.walked(at, partial(self.add, None))
        placed = self.local("Placed", 0)
        with self.p.iterate(self.fresh("Looked"), (self.sets_above,), "S", (self.fresh("s"),)) as (s,):
            self.p.where(differ(self.above_words[s], 0))
            with self.members(self.above_words, s) as word, self.members(self.words, word) as column:
                self.taken((r, placed[0]), column)
                placed[0] = placed[0] + 1

    @contextmanager
    def members(self, sets: BufferHandle, at: Expr) -> Iterator[Expr]:
        """The members of a set, which it loses: `WORD * at` and the places of its bits."""
        with self.once():
            left = self.local("Left", 0)
            left[0] = sets[at]
            sets[at] = 0
            count = bits.bit_count(left[0])
            with self.p.iterate(
                self.fresh("Members"), (self.lane,), "S", (self.fresh("b"),), bounds=((self.lane, 0, count),)
            ):
                member = self.local("Member", 0)
                member[0] = at * WORD + bits.trailing_zeros(left[0])
                left[0] = bits.without_lowest(left[0])
                yield member[0]

    def taken(self, place: tuple[Expr, ...], column: Expr) -> None:
        """Write the sum of a column, and leave zero there for the next row."""
        self.write(place, column, self.work[column])
        self.work[column] = self.zero
