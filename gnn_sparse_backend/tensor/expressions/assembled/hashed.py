"""A workspace for rows of few elements among many columns: the columns are found by hashing.

Those of a row are listed as they come, each with its sum, and a table says for each value of the hash which of its
columns came last. A column that is not there, where another one is, is looked for in the list: rows are short, and
stage I has no loop that ends where it finds something. So a row touches a few lines of memory, where a value for each
column would be a miss of the caches for every product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ....compiler import Axis, differ, equal, number, select
from ....compiler.language.builder import BufferHandle
from ....compiler.language.expr import Expr, Var, cast
from .assembly import Assembly

MOST = 96
"""Elements of a row that is summed so."""
TABLE = 1024
"""Values of the hash, several for each element, so that few columns share one."""
FACTOR = 40503
"""2^16 over the golden ratio (Fibonacci hashing)."""
WIDE = 1 << 18
"""Columns from which a value for each is beyond a core's own cache."""


class Table:
    """Such a workspace, made before the first row of a thread. sums: of each column; none where columns are counted
    alone.
    """

    def __init__(self, owner: Assembly, workspace: Callable[[str, Axis, str], BufferHandle], sums: bool) -> None:
        self.owner = owner
        entries = self.axis("Entries", MOST + 2)
        # entry 0 is a column that no row has
        self.keys, self.entries = workspace("Keys", entries, owner.index_dtype), entries
        self.table = workspace("Table", self.axis("Hashes", TABLE), "int32")
        self.sums = workspace("Sums", entries, owner.dtype) if sums else None
        self.listed = self.axis("Listed", MOST + 2)
        self.begin()

    def axis(self, name: str, length: int) -> Axis:
        return self.owner.p.dense_fixed(self.owner.fresh(name), length)

    @contextmanager
    def entry(self, axis: Axis, kinds: str, last: Expr) -> Iterator[Var]:
        """Each that is in use."""
        p, fresh = self.owner.p, self.owner.fresh
        bounds = ((axis, number(1), last + 1),)
        with p.iterate(fresh("Entry"), (axis,), kinds, (fresh("q"),), bounds=bounds) as (q,):
            yield q

    def begin(self) -> None:
        """Leave it without entries."""
        self.owner.clear(self.table)
        self.keys[number(0)] = -1

    def found(self, column: Expr, last: BufferHandle) -> Expr:
        """The entry of a column, a new one if it has none. last: the number of entries."""
        once, local, at = self.owner.once, self.owner.local, self.owner.local("At", 0)
        hashed = self.hash(column)
        at[0] = self.table[hashed]
        with once(differ(self.keys[at[0]], column)):
            other = local("Other", 0)
            with once(at[0] > 0), self.entry(self.listed, "S", last[0]) as q:
                other[0] = select(equal(self.keys[q], column), q, other[0])
            at[0] = other[0]
            with once(equal(at[0], 0)):
                last[0] = last[0] + 1
                at[0] = last[0]
                self.keys[at[0]] = column
                self.table[hashed] = at[0]
                if self.sums is not None:
                    self.sums[at[0]] = self.owner.zero
        return at[0]

    def leave(self, q: Expr) -> None:
        """Take an entry out of the table."""
        self.table[self.hash(self.keys[q])] = 0

    def hash(self, column: Expr) -> Expr:
        return cast("int64", column) * FACTOR // (1 << 16) % TABLE
