"""Rows of features that a block of warps leaves in shared memory, to be read as fragments of a transposed matrix.

Rows in memory hold neighbouring features; a fragment of ``mma`` holds neighbouring rows of one feature where the
product sums over rows. Rows in shared memory have 8 elements more than they need: the lanes of a warp, 4 (pairs of)
rows by 8 features, then read from different banks, whether elements have 16 or 32 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager

from ....compiler.language.axes import Axis
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, ExprLike, Var, both
from ....planner.cuda.tensor_cores import LANES

PAD = 8


class SharedRows:
    """A window of `rows` rows by `width` features, elements of which go to the lanes of all warps in turns.

    name: of the local buffer, which the schedule puts into shared memory. letter: of the names of the axes. total:
    features of a row, of which the last window may have fewer than `width`. part: neighbouring features that a lane
    loads together, which divides both.
    """

    def __init__(
        self,
        p: ProgramBuilder,
        name: str,
        letter: str,
        rows: int,
        width: int,
        total: int,
        part: int,
        warp: Axis,
        lane: Axis,
        dtype: str,
    ) -> None:
        self.p, self.name, self.rows, self.width, self.total, self.size = p, name, rows, width, total, part
        self.warp, self.lane, self.dtype = warp, lane, dtype
        self.stride = width + PAD
        self.whole = total % width == 0
        at_once = warp.static_length * LANES * part
        self.exact = rows * width % at_once == 0
        self.kept = p.dense_fixed(f"{name}_kept", rows * self.stride)
        self.turn = p.role_axis(letter, -(-rows * width // at_once), "turn")
        self.part = p.role_axis(letter, part, "part")

    def start(self, first: Expr) -> None:
        """Inside the iteration for which the rows are kept. first: feature of the window."""
        self.first = first
        self.buffer = self.p.local(self.name, (self.kept,), self.dtype)

    def __getitem__(self, at: tuple[Expr, Expr]) -> Expr:
        """The element (row, feature) of the window."""
        return self.buffer[at[0] * self.stride + at[1]]

    def __setitem__(self, at: tuple[Expr, Expr], value: ExprLike) -> None:
        self.buffer[at[0] * self.stride + at[1]] = value

    def load(self, present: Callable[[Expr], Expr], element: Callable[[Expr, Expr], Expr]) -> None:
        """`fetch` what is kept at once."""
        self.fetch(present, element)()

    def fetch(self, present: Callable[[Expr], Expr], element: Callable[[Expr, Expr], Expr]) -> Callable[[], None]:
        """The rows for which ``present(row)`` holds, and zeros in the place of the others, in registers, and the
        function that writes what leaves them in shared memory.

        element(row, feature): of a row of the window that is present. What comes between is done while the rows are on
        their way.
        """
        p, name = self.p, self.name.lower()
        held = p.local(f"Held_{name}", (self.lane, self.warp, self.turn, self.part), self.dtype)
        with self._visit("lack") as (turn, w, lane, e):
            held[lane, w, turn, e] = 0.0
        with self._visit("fetch") as (turn, w, lane, e):
            row, feature = self._place(turn, w, lane)
            self._where(row, present(row), *(() if self.whole else (self.first + feature < self.total,)))
            held[lane, w, turn, e] = element(row, self.first + feature + e)

        def keep() -> None:
            with self._visit("keep") as (turn, w, lane, e):
                row, feature = self._place(turn, w, lane)
                self._where(row)
                self[row, feature + e] = held[lane, w, turn, e]

        return keep

    def blank(self, count: Expr | None = None) -> None:
        """Zeros in the place of the rows from `count` on, or of all."""
        with self._visit("blank") as (turn, w, lane, e):
            row, feature = self._place(turn, w, lane)
            self._where(row, *(() if count is None else (row >= count,)))
            self[row, feature + e] = 0.0

    def _visit(self, what: str) -> AbstractContextManager[tuple[Var, ...]]:
        names = tuple(f"{n}_{what}_{self.name.lower()}" for n in "twlp")
        return self.p.iterate(
            f"{what}_{self.name.lower()}", (self.turn, self.warp, self.lane, self.part), "SSSS", names
        )

    def _where(self, row: Expr, *conditions: Expr) -> None:
        """Restrict a visit to what meets the conditions, of rows of the window: the last turn may be for more."""
        conditions = conditions if self.exact else (row < self.rows, *conditions)
        if conditions:
            self.p.where(functools.reduce(both, conditions))

    def _place(self, turn: Expr, w: Expr, lane: Expr) -> tuple[Expr, Expr]:
        """(row, feature) in the window of the first element that a lane has in a turn."""
        element = ((turn * self.warp.static_length + w) * LANES + lane) * self.size
        return element // self.width, element % self.width
