"""What the warps of a block accumulate in registers: cleared, multiplied into, and stored element by element in the end."""

from __future__ import annotations

import functools
from collections.abc import Callable

from ..coordinate.builder import BufferHandle, ProgramBuilder
from ..coordinate.expr import Expr, both
from .grouped_tiles import LANES
from .row_products import BlockSpec, Operands


class Accumulators:
    """The tiles of the warps of a block (`BlockSpec`), of which each lane has the elements that its product gives it.

    ``warp``, ``lane``: axes of the threads of a block. ``down``, ``wide``: of the tiles of a warp. ``held``: of the elements of a tile
    that a lane has; ``half``: those by which their rows differ, ``near`` of them lie side by side in a row.
    """

    def __init__(self, p: ProgramBuilder, spec: BlockSpec):
        self.p, self.spec, self.product = p, spec, spec.product
        self.warp, self.lane = p.dense_fixed("V_warp", spec.warps[0] * spec.warps[1]), p.dense_fixed("W_lane", LANES)
        self.down, self.wide = p.dense_fixed("M_turn", spec.tiles[0]), p.dense_fixed("N_turn", spec.tiles[1])
        high, self.near = self.product.held
        self.held, self.half = p.dense_fixed("R_turn", high * self.near), p.dense_fixed("H_turn", high)
        # neighbouring elements are one vector where every row of the result begins with a whole one
        self.vectors = spec.out_features % self.near == 0
        self.out = p.dense_fixed("O_part" if self.vectors else "O_turn", self.near)

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.warp.length * LANES

    def each(self, name: str):
        """An iteration over all elements; visits (w, m, n, r, l), of which element [l, w, m, n, r] is one."""
        axes = self.warp, self.down, self.wide, self.held, self.lane
        return self.p.iterate(name, axes, "SSSSS", tuple(f"{n}_{name}" for n in "wmnrl"))

    def zeros(self, name: str) -> BufferHandle:
        """A float32 for each element, all of them zero."""
        made = self.p.local(name, (self.lane, self.warp, self.down, self.wide, self.held), "float32")
        with self.each(f"clear_{name.lower()}") as (w, m, n, r, l):
            made[l, w, m, n, r] = 0.0
        return made

    def multiplier(self, terms: int, columns: int, place: Callable, left: Callable, right: Callable, **more: bool) -> Callable[..., None]:
        """A function (result, suffix="") that writes what adds the products of these `Operands` to an array of elements.

        suffix: of the names of its iterations and buffers, where a program has several products.
        """
        whole = columns % self.spec.width == 0
        operands = Operands(terms, columns, place, left, right, self.lane, self.down, self.wide, whole=whole, **more)
        multiply = self.product.writer(self.p, operands)

        def add(result: BufferHandle, suffix: str = "") -> None:
            with self.p.iterate("warps" + suffix, (self.warp,), "S", ("wm",)) as (w,):
                multiply(w, result, suffix)

        return add

    def store(self, result: BufferHandle, place: Callable[..., tuple[Expr, Expr]], put: Callable[[Expr, Expr, Expr], None],
              inside: Callable[[Expr], Expr] | None = None) -> None:  # fmt: skip
        """put(row, column, value) for every element of ``result`` in a column that the matrix has, and in a row for which ``inside`` holds.

        place(w, m, n): as of `Operands`; the row and the column that are put are counted as there.
        """
        axes = self.warp, self.down, self.wide, self.half, self.lane, self.out
        with self.p.iterate("store", axes, "SSSSSS", ("wo", "mo", "no", "ho", "lo", "eo")) as (w, m, n, h, l, e):
            row, column = place(w, m, n)
            row, column = row + self.product.row(l, h), column + self.product.column(l)
            checks = [] if inside is None else [inside(row)]
            if self.spec.out_features % self.spec.width:
                checks.append((column if self.vectors else column + e) < self.spec.out_features)
            if checks:
                self.p.where(functools.reduce(both, checks))
            put(row, column + e, result[l, w, m, n, h * self.near + e])


__all__ = ["Accumulators"]
