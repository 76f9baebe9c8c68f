"""Grouped matrix products on Tensor Cores: gathered rows, multiplied by the matrix of their relation in fragments.

Tensor Cores multiply a tile of 16 rows by one of 8 columns, for 32 lanes together, each of which holds a few elements
of every tile: its fragment. This program is written in terms of the fragments of ``mma.m16n8k16`` (of 16-bit types) and
``mma.m16n8k8`` (tf32); which lane holds what is laid down in PTX ISA, section "Matrix fragments for mma" (with group =
lane // 4, t = lane % 4, and q elements of a row side by side, 2 of 16 bits or 1 of 32):

    A  16 x 8q   register r: row group + 8 (r % 2), columns 4q (r // 2) + q t, ...   r < 4
    B  8q x 8    register r: rows 4q r + q t, ..., column group                      r < 2
    C  16 x 8    register r: row group + 8 (r // 2), column 2 t + r % 2              r < 4

The iteration ``mma`` says what the instruction computes, so that the program means the same without it
(`primitives.cuda.mma` puts the instruction in its place). Each element of the gathered rows is loaded by the one
lane that holds it, so that they need no shared memory, and stay in registers for all columns of the matrix.

Matrices have any widths. Terms of a sum that its last tile lacks are zero on both sides, and not loaded, so that an Inf
or NaN of another row is not met. Columns that B lacks are copies of its last, and not stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ....compiler.language.axes import Axis, StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, both, cast, minimum
from ....compiler.language.program import Program
from ....frozen import dataclass
from ....planner.cuda.tensor_cores import COLUMNS, LANES, ROWS, SIDE_BY_SIDE, padded, refuses
from ...core.tiles.matrices import Matrices
from .grouped import row_at, row_indices


@dataclass(frozen=True)
class TilesSpec:
    """What is static in the product.

    in_features, out_features: any widths from 1 on. tiles: of 16 rows that a panel has.
    gathered: for A and for C, whether its rows are named by an index array. by_columns: as of `Matrices`. dtype:
    float16, bfloat16, or float32, of which Tensor Cores take ten bits of the fraction (tf32). index_dtype: of all index
    arrays.
    """

    in_features: int
    out_features: int
    tiles: int = 1
    gathered: tuple[bool, bool] = (False, False)
    dtype: str = "float16"
    index_dtype: str = "int32"
    by_columns: bool = False

    @property
    def step(self) -> int:
        """Elements of a row of A that one instruction takes."""
        return 8 * SIDE_BY_SIDE[self.dtype]

    @property
    def rows(self) -> int:
        """Rows of a panel."""
        return ROWS * self.tiles


class Fragments:
    """Writes the part of a program that multiplies panels of rows by matrices, fragment by fragment.

    left(row, column): an element of the rows of the panel. right(column, term): of the matrix.
    store(row, column, value): where an element of the product goes; row is below `spec.rows`.
    """

    def __init__(self, p: ProgramBuilder, spec: TilesSpec) -> None:
        self.p, self.spec, self.q = p, spec, SIDE_BY_SIDE[spec.dtype]
        covered = padded(spec.in_features, spec.out_features, spec.dtype)
        self.whole = spec.in_features == covered[0], spec.out_features == covered[1]
        # neighbouring elements are one vector where every row begins with a whole one
        self.vectors = spec.in_features % self.q == 0, spec.out_features % 2 == 0
        self.lane = p.role_axis("W", LANES, "lane")
        self.pair = p.role_axis("Q", self.q, "part" if self.vectors[0] else "turn")
        self.side = p.role_axis("E", self.q, "part" if self.vectors[0] and spec.by_columns else "turn")
        self.two = p.role_axis("T", 2, "part" if self.vectors[1] else "turn")
        self.step = p.role_axis("S", covered[0] // spec.step, "turn")
        self.tile = p.role_axis("M", spec.tiles, "turn")
        self.four, self.half = p.role_axis("R", 4, "turn"), p.role_axis("H", 2, "turn")
        self.extents = tuple(p.dense_fixed(name, extent) for name, extent in zip("MNK", (ROWS, COLUMNS, spec.step)))
        self.column = p.dense_fixed("B", covered[1] // COLUMNS)

    def product(
        self,
        left: Callable[[Expr, Expr], Expr],
        right: Callable[[Expr, Expr], Expr],
        store: Callable[[Expr, Expr, Expr], None],
        where: Callable[[Expr], Expr] | None = None,
    ) -> None:
        """where(row): the condition that the panel has such a row, for what is stored."""
        p, spec, q = self.p, self.spec, self.q
        AF = p.local("AF", (self.lane, self.step, self.tile, self.four, self.pair), spec.dtype)
        axes: tuple[Axis, ...] = (self.step, self.tile, self.four, self.lane, self.pair)
        if not self.whole[0]:
            with p.iterate("lack_a", axes, "SSSSS", ("sz", "mz_a", "rz_a", "lz_a", "qz")) as (s, m, r, lane, e):
                AF[lane, s, m, r, e] = 0.0
        with p.iterate("load_a", axes, "SSSSS", ("sa", "ma", "ra", "la", "qa")) as (s, m, r, lane, e):
            first = s * spec.step + (r // 2) * (4 * q) + (lane % 4) * q
            self._where(self._inside(0, first, e))
            AF[lane, s, m, r, e] = left(m * ROWS + lane // 4 + (r % 2) * 8, first + e)
        with p.iterate("columns", (self.column,), "S", ("b",)) as (b,):
            CF = p.local("CF", (self.lane, self.tile, self.four), "float32")
            with p.iterate("clear", (self.tile, self.four, self.lane), "SSS", ("mz", "rz", "lz")) as (m, r, lane):
                CF[lane, m, r] = 0.0
            with p.iterate("steps", (self.step,), "R", ("s",)) as (s,):
                BF = p.local("BF", (self.lane, self.half, self.side), spec.dtype)
                axes = (self.half, self.lane, self.side)
                if not self.whole[0]:
                    with p.iterate("lack_b", axes, "SSS", ("rz_b", "lz_b", "qz_b")) as (r, lane, e):
                        BF[lane, r, e] = 0.0
                with p.iterate("load_b", axes, "SSS", ("rb", "lb", "qb")) as (r, lane, e):
                    first, column = s * spec.step + r * (4 * q) + (lane % 4) * q, b * COLUMNS + lane // 4
                    self._where(self._inside(0, first, e))
                    last = column if self.whole[1] else minimum(column, as_expr(spec.out_features - 1))
                    BF[lane, r, e] = right(last, first + e)
                with p.iterate("tiles", (self.tile,), "S", ("mt",)) as (mt,):
                    with p.iterate("mma", self.extents, "SSR", ("m", "n", "k")) as (m, n, k):
                        a = AF[(m % 8) * 4 + (k % (4 * q)) // q, s, mt, m // 8 + 2 * (k // (4 * q)), k % q]
                        b_ = BF[n * 4 + (k % (4 * q)) // q, k // (4 * q), k % q]
                        at = ((m % 8) * 4 + n // 2, mt, (m // 8) * 2 + n % 2)
                        CF[at] = CF[at] + cast("float32", a) * cast("float32", b_)
            axes = (self.tile, self.half, self.lane, self.two)
            with p.iterate("store", axes, "SSSS", ("mo", "ho", "lo", "eo")) as (m, h, lane, e):
                row, first = m * ROWS + lane // 4 + h * 8, b * COLUMNS + (lane % 4) * 2
                self._where(None if where is None else where(row), self._inside(1, first, e))
                store(row, first + e, cast(spec.dtype, CF[lane, m, h * 2 + e]))

    def _inside(self, which: int, first: Expr, e: Expr) -> Expr | None:
        """The condition that element `e` from `first` on is below in_features (0) or out_features (1), the same for all
        of a vector; None where it always is."""
        if self.whole[which]:
            return None
        return (first if self.vectors[which] else first + e) < (self.spec.in_features, self.spec.out_features)[which]

    def _where(self, *conditions: Expr | None) -> None:
        given = [c for c in conditions if c is not None]
        if given:
            self.p.where(functools.reduce(both, given))


def grouped_tiles(spec: TilesSpec) -> Program:
    """C[n] = A[n] W[r] for all rows n of each relation r, accumulated in float32.

    Parameters: (num_groups, num_panels, relations, rows_a, rows_c, [positions], group_ptr, Start, Stop, Relation,
    [RowsA], [RowsC], A, W, C), as of `grouped.grouped_product`, but that a panel has up to `spec.rows` positions and W
    may be by columns. A panel that is not full repeats its last row, and stores it as often.
    """
    reason = refuses(spec.in_features, spec.out_features, spec.dtype)
    if reason:
        raise StageIError(f"grouped_tiles: {reason}")
    p = ProgramBuilder("grouped_tiles")
    num_groups, panels, relations, rows_a, rows_c = p.sizes("num_groups", "num_panels", "relations", "rows_a", "rows_c")
    G = p.dense_fixed("G", num_groups)
    P = p.dense_variable("P", G, (panels, panels), "group_ptr", spec.index_dtype)
    Start, Stop, Relation = (p.buffer(name, (G, P), spec.index_dtype) for name in ("Start", "Stop", "Relation"))
    rows = row_indices(p, spec.gathered, spec.index_dtype, "RowsA", "RowsC")
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    A = p.buffer("A", (p.dense_fixed("NA", rows_a), FI), spec.dtype)
    W = Matrices(p, (p.dense_fixed("NW", relations),), FI, FO, spec.by_columns, spec.dtype)
    C = p.buffer("C", (p.dense_fixed("NC", rows_c), FO), spec.dtype)
    fragments = Fragments(p, spec)
    with p.iterate("panels", (G, P), "SS") as (g, panel):

        def row(which: int, at: Expr) -> Expr:
            return row_at(rows[which], minimum(Start[g, panel] + at, Stop[g, panel] - 1))

        def store(at: Expr, column: Expr, value: Expr) -> None:
            C[row(1, at), column] = value

        fragments.product(lambda at, column: A[row(0, at), column], W[Relation[g, panel],], store)
    return p.finish()
