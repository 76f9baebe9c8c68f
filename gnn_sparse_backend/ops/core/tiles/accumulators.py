"""What the warps of a block accumulate in registers: cleared, multiplied into, and stored element by element in the
end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, Var, both
from ....planner.cuda.tensor_cores import LANES
from .row_products import BlockSpec, Element, Operands, Place


class Accumulators:
    """The tiles of the warps of a block (`BlockSpec`), of which each lane has the elements that its product gives it.

    ``warp``, ``lane``: axes of the threads of a block. ``down``, ``wide``: of the tiles of a warp. ``held``: of the
    elements of a tile that a lane has; ``half``: those by which their rows differ, ``near`` of them lie side by side in
    a row.
    """

    def __init__(self, p: ProgramBuilder, spec: BlockSpec) -> None:
        self.p, self.spec, self.product = p, spec, spec.product
        self.warp, self.lane = p.role_axis("V", spec.warps[0] * spec.warps[1], "warp"), p.role_axis("W", LANES, "lane")
        self.down, self.wide = p.role_axis("M", spec.tiles[0], "turn"), p.role_axis("N", spec.tiles[1], "turn")
        high, self.near = self.product.held
        self.held, self.half = p.role_axis("R", high * self.near, "turn"), p.role_axis("H", high, "turn")
        # neighbouring elements, of as many tiles as columns are dealt to, are one vector where every row of the result
        # begins with a whole one
        self.group = p.role_axis("Group", spec.tiles[1] // self.product.together, "turn")
        aside = self.near * self.product.together
        part = math.gcd(aside, spec.out_features)
        self.turn, self.part = p.role_axis("O", aside // part, "turn"), p.role_axis("O", part, "part")

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warp.static_length * LANES

    def each(self, name: str) -> AbstractContextManager[tuple[Var, ...]]:
        """An iteration over all elements; visits (w, m, n, r, l), of which element [l, w, m, n, r] is one."""
        axes = self.warp, self.down, self.wide, self.held, self.lane
        return self.p.iterate(name, axes, "SSSSS", tuple(f"{n}_{name}" for n in "wmnrl"))

    def zeros(self, name: str) -> BufferHandle:
        """A float32 for each element, all of them zero."""
        made = self.p.local(name, (self.lane, self.warp, self.down, self.wide, self.held), "float32")
        with self.each(f"clear_{name.lower()}") as (w, m, n, r, l):
            made[l, w, m, n, r] = 0.0
        return made

    def multiplier(
        self, terms: int, columns: int, place: Place, left: Element, right: Element, **more: bool
    ) -> Callable[..., None]:
        """A function (result, suffix="") that writes what adds the products of these `Operands` to an array of
        elements.

        suffix: of the names of its iterations and buffers, where a program has several products.
        """
        whole = columns % self.spec.width == 0
        operands = Operands(terms, columns, place, left, right, self.lane, self.down, self.wide, whole=whole, **more)
        multiply = self.product.writer(self.p, operands)

        def add(result: BufferHandle, suffix: str = "") -> None:
            with self.p.iterate("warps" + suffix, (self.warp,), "S", ("wm",)) as (w,):
                multiply(w, result, suffix)

        return add

    def store(
        self,
        result: BufferHandle,
        place: Place,
        put: Callable[[Expr, Expr, Expr], None],
        inside: Callable[[Expr], Expr] | None = None,
    ) -> None:
        """put(row, column, value) for every element of ``result`` in a column that the matrix has, and in a row for
        which ``inside`` holds.

        place(w, m, n): as of `Operands`; the row and the column that are put are counted as there.
        """
        axes = self.warp, self.down, self.group, self.half, self.lane, self.turn, self.part
        names, together = tuple(f"{name}o" for name in "wmnhlte"), self.product.together
        with self.p.iterate("store", axes, "SSSSSSS", names) as (w, m, g, h, l, t, e):
            row, column = place(w, m, g * together)
            element = t * self.part.static_length + e
            row, column = row + self.product.row(l, h), column + self.product.column(l) + t * self.part.static_length
            checks = [] if inside is None else [inside(row)]
            if self.spec.out_features % self.spec.width:
                checks.append(column < self.spec.out_features)
            if checks:
                self.p.where(functools.reduce(both, checks))
            at = l, w, m, g * together + element % together, h * self.near + element // together
            put(row, column + e, result[at])
