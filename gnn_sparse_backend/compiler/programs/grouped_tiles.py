"""Grouped matrix products on Tensor Cores: gathered rows, multiplied by the matrix of their relation in fragments.

Tensor Cores multiply a tile of 16 rows by one of 8 columns, for 32 lanes together, each of which holds a few elements of
every tile: its fragment. This program is written in terms of the fragments of ``mma.m16n8k16`` (of 16-bit types) and
``mma.m16n8k8`` (tf32); which lane holds what is laid down in PTX ISA, section "Matrix fragments for mma" (with group =
lane // 4, t = lane % 4, and q elements of a row side by side, 2 of 16 bits or 1 of 32):

    A  16 x 8q   register r: row group + 8 (r % 2), columns 4q (r // 2) + q t, ...   r < 4
    B  8q x 8    register r: rows 4q r + q t, ..., column group                      r < 2
    C  16 x 8    register r: row group + 8 (r // 2), column 2 t + r % 2              r < 4

The iteration ``mma`` says what the instruction computes, so that the program means the same without it
(`schedule.primitives.mma` puts the instruction in its place). Each element of the gathered rows is loaded by the one lane
that holds it, so that they need no shared memory, and stay in registers for all columns of the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..coordinate.axes import StageIError
from ..coordinate.builder import ProgramBuilder
from ..coordinate.expr import cast, minimum
from ..coordinate.program import Program
from .grouped import row_at, row_indices

ROWS, COLUMNS, LANES = 16, 8, 32
SIDE_BY_SIDE = {"float16": 2, "bfloat16": 2, "float32": 1}


@dataclass(frozen=True)
class TilesSpec:
    """What is static in the product.

    in_features: a multiple of `step`. out_features: a multiple of 8. tiles: of 16 rows that a panel has.
    gathered: for A and for C, whether its rows are named by an index array. dtype: float16, bfloat16, or float32, of which
    Tensor Cores take ten bits of the fraction (tf32). index_dtype: of all index arrays.
    """

    in_features: int
    out_features: int
    tiles: int = 1
    gathered: tuple[bool, bool] = (False, False)
    dtype: str = "float16"
    index_dtype: str = "int32"

    @property
    def step(self) -> int:
        """Elements of a row of A that one instruction takes."""
        return 8 * SIDE_BY_SIDE[self.dtype]

    @property
    def rows(self) -> int:
        """Rows of a panel."""
        return ROWS * self.tiles


def refuses(in_features: int, out_features: int, dtype: str) -> str | None:
    """Why matrices of this shape and type cannot be cut into tiles, or None."""
    if dtype not in SIDE_BY_SIDE:
        return f"Tensor Cores do not multiply {dtype} here"
    step = 8 * SIDE_BY_SIDE[dtype]
    if in_features % step or out_features % COLUMNS or not in_features or not out_features:
        return f"matrices of shape ({in_features}, {out_features}) are not whole tiles of ({step}, {COLUMNS})"
    return None


class Fragments:
    """Writes the part of a program that multiplies panels of rows by matrices, fragment by fragment.

    left(row, column): an element of the rows of the panel. right(column, place): of the transposed matrix.
    store(row, column, value): where an element of the product goes; row is below `spec.rows`.
    """

    def __init__(self, p: ProgramBuilder, spec: TilesSpec):
        self.p, self.spec, self.q = p, spec, SIDE_BY_SIDE[spec.dtype]
        self.lane, self.pair = p.dense_fixed("W_lane", LANES), p.dense_fixed("Q_part", self.q)
        self.two = self.pair if self.q == 2 else p.dense_fixed("T_part", 2)
        self.step = p.dense_fixed("S_turn", spec.in_features // spec.step)
        self.tile = p.dense_fixed("M_turn", spec.tiles)
        self.four, self.half = p.dense_fixed("R_turn", 4), p.dense_fixed("H_turn", 2)
        self.extents = tuple(p.dense_fixed(name, extent) for name, extent in zip("MNK", (ROWS, COLUMNS, spec.step)))
        self.column = p.dense_fixed("B", spec.out_features // COLUMNS)

    def product(self, left, right, store, where=None) -> None:
        """where(row): the condition that the panel has such a row, for what is stored."""
        p, spec, q = self.p, self.spec, self.q
        AF = p.local("AF", (self.lane, self.step, self.tile, self.four, self.pair), spec.dtype)
        with p.iterate("load_a", (self.step, self.tile, self.four, self.lane, self.pair), "SSSSS",
                       ("sa", "ma", "ra", "la", "qa")) as (s, m, r, lane, e):  # fmt: skip
            column = s * spec.step + (r // 2) * (4 * q) + (lane % 4) * q + e
            AF[lane, s, m, r, e] = left(m * ROWS + lane // 4 + (r % 2) * 8, column)
        with p.iterate("columns", (self.column,), "S", ("b",)) as (b,):
            CF = p.local("CF", (self.lane, self.tile, self.four), "float32")
            with p.iterate("clear", (self.tile, self.four, self.lane), "SSS", ("mz", "rz", "lz")) as (m, r, lane):
                CF[lane, m, r] = 0.0
            with p.iterate("steps", (self.step,), "R", ("s",)) as (s,):
                BF = p.local("BF", (self.lane, self.half, self.pair), spec.dtype)
                with p.iterate("load_b", (self.half, self.lane, self.pair), "SSS", ("rb", "lb", "qb")) as (r, lane, e):
                    place = s * spec.step + r * (4 * q) + (lane % 4) * q + e
                    BF[lane, r, e] = right(b * COLUMNS + lane // 4, place)
                with p.iterate("tiles", (self.tile,), "S", ("mt",)) as (mt,):
                    with p.iterate("mma", self.extents, "SSR", ("m", "n", "k")) as (m, n, k):
                        a = AF[(m % 8) * 4 + (k % (4 * q)) // q, s, mt, m // 8 + 2 * (k // (4 * q)), k % q]
                        b_ = BF[n * 4 + (k % (4 * q)) // q, k // (4 * q), k % q]
                        at = ((m % 8) * 4 + n // 2, mt, (m // 8) * 2 + n % 2)
                        CF[at] = CF[at] + cast("float32", a) * cast("float32", b_)
            with p.iterate("store", (self.tile, self.half, self.lane, self.two), "SSSS",
                           ("mo", "ho", "lo", "eo")) as (m, h, lane, e):  # fmt: skip
                row = m * ROWS + lane // 4 + h * 8
                if where is not None:
                    p.where(where(row))
                store(row, b * COLUMNS + (lane % 4) * 2 + e, cast(spec.dtype, CF[lane, m, h * 2 + e]))


def grouped_tiles(spec: TilesSpec) -> Program:
    """C[n] = A[n] W[r]^T for all rows n of each relation r, accumulated in float32.

    Parameters: (num_groups, num_panels, relations, rows_a, rows_c, [positions], group_ptr, Start, Stop, Relation,
    [RowsA], [RowsC], A, W, C), as of `grouped.grouped_product`, but that a panel has up to `spec.rows` positions and W is
    (relations, F_out, F_in). A panel that is not full repeats its last row, and stores it as often.
    """
    reason = refuses(spec.in_features, spec.out_features, spec.dtype)
    if reason:
        raise StageIError(f"grouped_tiles: {reason}")
    p = ProgramBuilder("grouped_tiles")
    num_groups, panels, relations, rows_a, rows_c = p.sizes("num_groups", "num_panels", "relations", "rows_a", "rows_c")
    positions = p.size("positions") if any(spec.gathered) else None
    G = p.dense_fixed("G", num_groups)
    P = p.dense_variable("P", G, (panels, panels), "group_ptr", spec.index_dtype)
    Start, Stop, Relation = (p.buffer(name, (G, P), spec.index_dtype) for name in ("Start", "Stop", "Relation"))
    rows = row_indices(p, spec, positions, ("RowsA", "RowsC"))
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    A = p.buffer("A", (p.dense_fixed("NA", rows_a), FI), spec.dtype)
    W = p.buffer("W", (p.dense_fixed("NW", relations), FO, FI), spec.dtype)
    C = p.buffer("C", (p.dense_fixed("NC", rows_c), FO), spec.dtype)
    fragments = Fragments(p, spec)
    with p.iterate("panels", (G, P), "SS") as (g, panel):

        def row(which: int, at):
            return row_at(rows[which], minimum(Start[g, panel] + at, Stop[g, panel] - 1))

        def store(at, column, value) -> None:
            C[row(1, at), column] = value

        fragments.product(lambda at, column: A[row(0, at), column],
                          lambda column, place: W[Relation[g, panel], column, place], store)  # fmt: skip
    return p.finish()


__all__ = ["COLUMNS", "LANES", "ROWS", "Fragments", "TilesSpec", "grouped_tiles", "refuses"]
