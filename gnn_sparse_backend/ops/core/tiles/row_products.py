"""How the warps of a block multiply what lies in shared memory: which lane has which elements of the result, and how it
gets them.

A warp accumulates tiles of ``rows`` x ``columns``, of which lane l holds ``held`` elements, (down, across): of rows
``row(l, h)``, and of columns from ``column(l)`` on. The t-th of ``together`` neighbouring tiles has columns t, t +
together, ...: what a lane holds of all of them are neighbours. There are two forms of this product:

- `InFragments`: tiles and fragments of ``mma`` (`grouped_tiles` has the layouts), on Tensor Cores. Where a matrix lies
  in memory row by row, a lane loads columns of two tiles as one vector, though an instruction takes elements of
  different rows for a register.
- `InLanes`: every lane multiplies for itself, in full precision. It has a row and four neighbouring columns of each
  tile, so that one term of a row serves four products. The lanes of a warp have ``across`` stretches of columns, and
  share rows: what they load of one is the same element, or the same 16 bytes, for all of these lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ....compiler.language.axes import Axis
from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, ExprLike, as_expr, cast, minimum
from ....frozen import dataclass
from ....planner.cuda.tensor_cores import COLUMNS, LANES, ROWS, SIDE_BY_SIDE, padded

# Terms of its rows that a lane loads at a time where they lie side by side, and registers for them.
TERMS = 4
HELD_TERMS = 16
# Neighbouring columns of a tile that a lane has.
STRETCH = 4

Place: TypeAlias = Callable[[Expr, ExprLike, ExprLike], tuple[Expr, Expr]]
"""place(w, m, n): the row and the column where the tile begins that is the m-th down and the n-th across of warp w."""
Element: TypeAlias = Callable[[Expr, Expr], Expr]

Multiply: TypeAlias = Callable[..., None]
"""multiply(w, result, suffix=""): adds the product of warp w to ``result``.

``result`` is a local buffer (lane, warp, down, wide, element of the tile).
suffix: of the names of its iterations and buffers, where a program has several products."""


@dataclass(frozen=True)
class Operands:
    """What the warps of a block multiply.

    terms: that are summed over. left(row, term), right(column, term): elements. lane, down, wide: axes of the lanes of
    a warp, and of its tiles.
    columns: of the right operand. whole: whether no tile has columns beyond; what is computed of these is not stored.
    terms_aside: whether neighbouring terms of a row of the left operand lie side by side in memory. by_columns: whether
    those of a column of the right one do, in place of neighbouring columns of a term. unrolled: whether there are but
    few terms.
    """

    terms: int
    columns: int
    place: Place
    left: Element
    right: Element
    lane: Axis
    down: Axis
    wide: Axis
    whole: bool = True
    terms_aside: bool = True
    by_columns: bool = False
    unrolled: bool = False

    def clamp_column(self, column: Expr, several: int = 1) -> Expr:
        """Clamp ``column`` to the last one at which ``several`` columns begin, where tiles reach beyond."""
        return column if self.whole else minimum(column, as_expr(self.columns - several))

    def steps(self, p: ProgramBuilder, count: int) -> Axis:
        return p.role_axis("S", count, "turn" if self.unrolled else "")


@dataclass(frozen=True)
class InFragments:
    """Products on Tensor Cores, whose lanes have neighbouring terms of a row and of a column. together: 1 or 2."""

    dtype: str
    together: int = 1

    rows, columns, held = ROWS, COLUMNS, (2, 2)
    instruction = ("mma",)

    def covered(self, terms: int) -> int:
        """Terms that instructions take: where there are fewer, those of the left operand have to be zero."""
        return padded(terms, 1, self.dtype)[0]

    def loads(self, tiles: tuple[int, int]) -> int:
        """Loads for each instruction's terms, in pairs. tiles: of the left operand and of the right one."""
        return 2 * tiles[0] + tiles[1] * (2 if self.together == 1 else 1)

    def row(self, lane: Expr, h: Expr) -> Expr:
        return lane // 4 + h * 8

    def column(self, lane: Expr) -> Expr:
        return lane % 4 * (2 * self.together)

    def writer(self, p: ProgramBuilder, of: Operands) -> Multiply:
        dtype, q, lane = self.dtype, SIDE_BY_SIDE[self.dtype], of.lane
        covered = self.covered(of.terms)
        step, four, half = of.steps(p, covered // (8 * q)), p.role_axis("A", 4, "turn"), p.role_axis("B", 2, "turn")
        # neighbouring elements are one vector where every row begins with a whole one
        pair = p.role_axis("Q", q, "part" if of.terms_aside else "turn")
        group = p.role_axis("P", of.wide.static_length // self.together, "turn")
        twin = p.role_axis("T", self.together, "turn")
        # neighbouring elements of a matrix are one vector where every row of it, or column, begins with a whole one
        vectors = (of.terms if of.by_columns else of.columns) % (q if of.by_columns else self.together) == 0
        side = p.role_axis("E", q, "part" if of.by_columns and vectors else "turn")
        twins = p.role_axis("U", self.together, "part" if vectors and not of.by_columns else "turn")
        extents = tuple(p.dense_fixed(name, extent) for name, extent in zip("MNK", (ROWS, COLUMNS, 8 * q)))

        def multiply(w: Expr, result: BufferHandle, suffix: str = "") -> None:
            with p.iterate("steps" + suffix, (step,), "R", ("s",)) as (s,):
                AF = p.local("AF" + suffix, (lane, of.down, four, pair), dtype)
                axes = of.down, four, lane, pair
                with p.iterate("load_a" + suffix, axes, "SSSS", ("ma", "ra", "la", "qa")) as (m, r, l, e):
                    row = of.place(w, m, 0)[0] + l // 4 + r % 2 * 8
                    AF[l, m, r, e] = of.left(row, s * (8 * q) + r // 2 * (4 * q) + l % 4 * q + e)
                with p.iterate("across" + suffix, (group,), "S", ("ng",)) as (g,):
                    BF = p.local("BF" + suffix, (lane, twin, half, side), dtype)
                    # as they come: neighbouring terms of a column, which are a register's, or columns of a term, of as
                    # many tiles
                    order = (twin, side) if of.by_columns else (side, twins)
                    axes = half, lane, *order
                    came = BF if of.by_columns else p.local("BL" + suffix, (lane, half, *order), dtype)

                    def slot(l: Expr, r: Expr, i: Expr, j: Expr) -> tuple[Expr, ...]:
                        return (l, i, r, j) if of.by_columns else (l, r, i, j)

                    if covered != of.terms:
                        with p.iterate("lack_b" + suffix, axes, "SSSS", ("rz", "lz", "iz", "jz")) as (r, l, i, j):
                            came[slot(l, r, i, j)] = 0.0
                    with p.iterate("load_b" + suffix, axes, "SSSS", ("rb", "lb", "ib", "jb")) as (r, l, i, j):
                        v, e = (i, j) if of.by_columns else (j, i)
                        first = s * (8 * q) + r * (4 * q) + l % 4 * q
                        if covered != of.terms:
                            p.where((first if of.by_columns and vectors else first + e) < of.terms)
                        column = of.place(w, 0, g * self.together)[1] + l // 4 * self.together
                        apart = of.by_columns or not vectors
                        column = of.clamp_column(column + v) if apart else of.clamp_column(column, self.together) + v
                        came[slot(l, r, i, j)] = of.right(column, first + e)
                    if not of.by_columns:
                        with p.iterate("deal" + suffix, axes, "SSSS", ("rd", "ld", "ed", "vd")) as (r, l, e, v):
                            BF[l, v, r, e] = came[l, r, e, v]
                    with p.iterate("twins" + suffix, (twin, of.down), "SS", ("vt", "mt")) as (v, mt):
                        with p.iterate("mma" + suffix, extents, "SSR", ("m", "n", "k")) as (m, n, k):
                            a = AF[(m % 8) * 4 + k % (4 * q) // q, mt, m // 8 + 2 * (k // (4 * q)), k % q]
                            b = BF[n * 4 + k % (4 * q) // q, v, k // (4 * q), k % q]
                            at = ((m % 8) * 4 + n // 2, w, mt, g * self.together + v, (m // 8) * 2 + n % 2)
                            result[at] = result[at] + cast("float32", a) * cast("float32", b)

        return multiply


@dataclass(frozen=True)
class InLanes:
    """Products by every lane. across: stretches of columns that the lanes of a warp have, a power of two."""

    across: int
    dtype: str = "float32"

    held, together = (1, STRETCH), 1
    instruction = ()

    @property
    def rows(self) -> int:
        return LANES // self.across

    @property
    def columns(self) -> int:
        return STRETCH * self.across

    def covered(self, terms: int) -> int:
        """All terms are multiplied, and no others."""
        return terms

    def loads(self, tiles: tuple[int, int]) -> int:
        """Loads for four terms, those of the right operand counting twice: a matrix comes from farther away. tiles: of
        the left operand and of the right one.
        """
        return tiles[0] + 2 * TERMS * tiles[1]

    def row(self, lane: Expr, h: Expr) -> Expr:
        return lane // self.across + h

    def column(self, lane: Expr) -> Expr:
        return lane % self.across * STRETCH

    def writer(self, p: ProgramBuilder, of: Operands) -> Multiply:
        lane, several = of.lane, TERMS if of.terms_aside else 1
        while several > 1 and (of.terms % several or several * of.down.static_length > HELD_TERMS):
            several //= 2
        step, term = of.steps(p, of.terms // several), p.role_axis("K", several, "turn")
        loaded, each = p.role_axis("K", several, "part"), p.role_axis("C", STRETCH, "turn")
        vectors = of.columns % STRETCH == 0 and not of.by_columns
        side = p.role_axis("E", STRETCH, "part" if vectors else "turn")

        def column(w: Expr, nt: Expr, l: Expr, e: Expr) -> Expr:
            first = of.place(w, 0, nt)[1] + self.column(l)
            return of.clamp_column(first, STRETCH) + e if vectors else of.clamp_column(first + e)

        def multiply(w: Expr, result: BufferHandle, suffix: str = "") -> None:
            with p.iterate("steps" + suffix, (step,), "R", ("s",)) as (s,):
                AF = p.local("AF" + suffix, (lane, of.down, loaded), self.dtype)
                with p.iterate("load_a" + suffix, (of.down, lane, loaded), "SSS", ("ma", "la", "ka")) as (m, l, k):
                    AF[l, m, k] = of.left(of.place(w, m, 0)[0] + l // self.across, s * several + k)

                def add(nt: Expr, k: Expr, right: Callable[[Expr, Expr], Expr]) -> None:
                    with p.iterate("multiply" + suffix, (of.down, lane, each), "SSS", ("mt", "lt", "et")) as (mt, l, e):
                        result[l, w, mt, nt, e] = result[l, w, mt, nt, e] + AF[l, mt, k] * right(l, e)

                if of.by_columns:
                    with p.iterate("across" + suffix, (of.wide,), "S", ("nt",)) as (nt,):
                        BF = p.local("BF" + suffix, (lane, each, loaded), self.dtype)
                        with p.iterate("load_b" + suffix, (lane, each, loaded), "SSS", ("lb", "eb", "kb")) as (l, e, k):
                            BF[l, e, k] = of.right(column(w, nt, l, e), s * several + k)
                        with p.iterate("terms" + suffix, (term,), "R", ("k",)) as (k,):
                            add(nt, k, lambda l, e: BF[l, e, k])
                else:
                    with p.iterate("terms" + suffix, (term, of.wide), "RS", ("k", "nt")) as (k, nt):
                        BF = p.local("BF" + suffix, (lane, side), self.dtype)
                        with p.iterate("load_b" + suffix, (lane, side), "SS", ("lb", "eb")) as (l, e):
                            BF[l, e] = of.right(column(w, nt, l, e), s * several + k)
                        add(nt, k, lambda l, e: BF[l, e])

        return multiply


def product_of(dtype: str, across: int, wide: int) -> InFragments | InLanes:
    """across: stretches of columns among the lanes of a warp that multiply in full precision, 0 on Tensor Cores. wide:
    tiles of a warp.
    """
    return InLanes(across, dtype) if across else InFragments(dtype, 1 if wide % 2 else 2)


@dataclass(frozen=True)
class BlockSpec:
    """What is static in a program whose blocks of warps multiply by matrices of in_features x out_features; a program's
    own has ``dtype`` and ``index_dtype``.

    warps: of a block, along rows and along columns of what it accumulates. tiles: of the product, down and across, that
    a warp accumulates.
    across: stretches of columns that the lanes of a warp have where they multiply in full precision, which is float32
    alone; 0 on Tensor Cores.
    """

    in_features: int
    out_features: int
    warps: tuple[int, int] = (1, 1)
    tiles: tuple[int, int] = (1, 1)
    across: int = 0

    if TYPE_CHECKING:

        @property
        def dtype(self) -> str: ...

        @property
        def index_dtype(self) -> str: ...

    @property
    def product(self) -> InFragments | InLanes:
        """How it is multiplied."""
        return product_of(self.dtype, self.across, self.tiles[1])

    @property
    def rows(self) -> int:
        """Rows that a block accumulates."""
        return self.product.rows * self.tiles[0] * self.warps[0]

    @property
    def width(self) -> int:
        """Columns that a block accumulates."""
        return self.product.columns * self.tiles[1] * self.warps[1]

    def of_warp(self, w: Expr, m: ExprLike, n: ExprLike) -> tuple[Expr, Expr]:
        """(row, column) in the block where the tile begins that is the m-th down and the n-th across of warp w."""
        row, column = w // self.warps[1] * self.tiles[0] + m, w % self.warps[1] * self.tiles[1] + n
        return row * self.product.rows, column * self.product.columns


def refuses_lanes(dtype: str, across: int) -> str | None:
    """Why lanes do not multiply like that, or None."""
    if across and (across & (across - 1) or across > LANES or dtype != "float32"):
        return (
            f"lanes in {across} stretches of columns do not multiply {dtype} in full precision, "
            "but a power of two of them float32"
        )
    return None
