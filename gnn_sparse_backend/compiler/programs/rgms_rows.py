"""Relational gather-matmul-scatter on Tensor Cores in one pass: a block owns rows of the result, and no product is stored.

    O[i] = sum over relations r of (sum over the edges e of i and r of A[e] * X[j(e)]) W[r]^T

(RGMS; Ye et al., SparseTIR, section 4.4.) A block of warps has a tile of rows and goes through the relations of their edges. Of each it
gathers the rows of X, adds them up in registers, leaves the sums in shared memory, at the place of their row in the tile, and
multiplies them in fragments (``grouped_tiles`` has the layouts). Products of rows that have edges of the relation are added to
sums that stay in the registers of the lanes which hold the fragments; the others, of whatever lay in shared memory, are dropped, so that
no Inf or NaN of a matrix reaches a row that it is not for. In the end the lanes scatter the sums to the rows. All relations are one
launch, every row is one block's, relations come in their order: nothing is atomic.

Lanes gather in teams as wide as a row, and a team goes through its share of the edges one by one, whatever pairs they belong
to: it begins anew where an edge is the first of its row and relation, and leaves the sum in shared memory after each. So no loop is as
short as the edges of a pair, which are one or two in most graphs, and every team of a warp has a row on its way.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..coordinate.axes import StageIError
from ..coordinate.builder import ProgramBuilder
from ..coordinate.expr import as_expr, both, cast, differ, equal, minimum
from ..coordinate.program import Program
from .grouped_tiles import COLUMNS, LANES, ROWS, SIDE_BY_SIDE, padded, refuses
from .rgms_tiles import PAD_BYTES

SHARED = "Sums"
_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class RgmsRowsSpec:
    """What is static. warps: of a block, along the rows of its tile and along columns. tiles: of 16 rows and of 8 columns that a warp
    accumulates. lanes: of a team that loads a row of X, in parts of `part` neighbouring elements, which divides ``in_features``;
    both powers of two. out_dtype: of O. The rest as in an `RgmsTilesSpec`."""

    in_features: int
    out_features: int
    warps: tuple[int, int] = (1, 1)
    tiles: tuple[int, int] = (1, 1)
    lanes: int = LANES
    part: int = 1
    weighted: bool = False
    blocks: int = 1
    dtype: str = "float16"
    out_dtype: str = "float16"
    index_dtype: str = "int32"

    @property
    def rows(self) -> int:
        """Rows of a tile at most."""
        return ROWS * self.tiles[0] * self.warps[0]

    @property
    def width(self) -> int:
        """Columns that a block accumulates."""
        return COLUMNS * self.tiles[1] * self.warps[1]

    @property
    def grid(self) -> int:
        """Blocks that the columns of a matrix take."""
        return -(-self.out_features // self.width)

    @property
    def shares(self) -> int:
        """Teams of a block."""
        return self.warps[0] * self.warps[1] * (LANES // self.lanes)

    @property
    def stride(self) -> int:
        """Elements from row to row of the sums: those of a fragment then lie in different banks."""
        return padded(self.in_features, 1, self.dtype)[0] + PAD_BYTES // _BYTES[self.dtype]

    @property
    def shared_bytes(self) -> int:
        """Of the sums."""
        return self.rows * self.stride * _BYTES[self.dtype]


def rgms_rows(spec: RgmsRowsSpec) -> Program:
    """The program.

    Parameters: (num_tiles, panels, shares, nnz, cols, relations, rows, panel_ptr, owned_ptr, share_ptr, indices, Start, Stop, Relation,
    Present, Place, [A], Row, X, W, O), as of `formats.relational_tiles.RowTiles`: tile t has the rows Row[Start[t]], ...,
    Row[Stop[t] - 1], panel c the shares from owned_ptr[c] on, `spec.shares` of them. X is (cols, blocks, F_in), W (relations, blocks,
    F_out, F_in), O (rows, blocks, F_out).
    """
    _check(spec)
    q, covered = SIDE_BY_SIDE[spec.dtype], padded(spec.in_features, 1, spec.dtype)[0]
    p = ProgramBuilder("rgms_rows")
    tiles, panels, shares, nnz, cols, relations, rows = p.sizes(
        "num_tiles", "panels", "shares", "nnz", "cols", "relations", "rows")  # fmt: skip
    T, B, D = p.dense_fixed("T", tiles), p.dense_fixed("B_grid", spec.blocks * spec.grid), p.dense_fixed("D", spec.blocks)
    C = p.dense_variable("C", T, (panels, panels), "panel_ptr", spec.index_dtype)
    U = p.dense_variable("U", C, (shares, shares), "owned_ptr", spec.index_dtype)
    J = p.sparse_variable("J", U, (cols, nnz), ("share_ptr", "indices"), spec.index_dtype, sorted=False, unique=False)
    Start, Stop = (p.buffer(name, (T,), spec.index_dtype) for name in ("Start", "Stop"))
    Relation = p.buffer("Relation", (T, C), spec.index_dtype)
    Present, Place = p.buffer("Present", (T, C, p.dense_fixed("L", spec.rows)), "uint8"), p.buffer("Place", (T, C, U, J), "uint8")
    A = p.buffer("A", (T, C, U, J), "float32") if spec.weighted else None
    NO = p.dense_fixed("NO", rows)
    Row = p.buffer("Row", (NO,), spec.index_dtype)
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    X = p.buffer("X", (p.dense_fixed("NX", cols), D, FI), spec.dtype)
    W = p.buffer("W", (p.dense_fixed("NW", relations), D, FO, FI), spec.dtype)
    O = p.buffer("O", (NO, D, FO), spec.out_dtype)
    warps, across = spec.warps[0] * spec.warps[1], spec.warps[1]
    warp, lane = p.dense_fixed("V_warp", warps), p.dense_fixed("W_lane", LANES)
    down, wide = p.dense_fixed("M_turn", spec.tiles[0]), p.dense_fixed("N_turn", spec.tiles[1])
    four, half = p.dense_fixed("R_turn", 4), p.dense_fixed("H_turn", 2)
    # neighbouring elements are one vector where every row begins with a whole one
    pair, side = p.dense_fixed("Q_part", q), p.dense_fixed("E_part" if spec.in_features % q == 0 else "E_turn", q)
    out = p.dense_fixed("O_part" if spec.out_features % 2 == 0 else "O_turn", 2)
    step = p.dense_fixed("S", covered // (8 * q))
    extents = tuple(p.dense_fixed(name, extent) for name, extent in zip("MNK", (ROWS, COLUMNS, 8 * q)))
    turn, part = p.dense_fixed("X_turn", -(-spec.in_features // (spec.lanes * spec.part))), p.dense_fixed("X_part", spec.part)
    kept = p.dense_fixed("Kept", spec.rows * spec.stride)
    lack = spec.rows * (covered - spec.in_features)
    lacking = p.dense_fixed("Z_turn", -(-lack // (warps * LANES))) if lack else None

    def of_warp(w, m, n):
        """(row in the tile, column in the block) where a tile of a warp begins."""
        return (w // across * spec.tiles[0] + m) * ROWS, (w % across * spec.tiles[1] + n) * COLUMNS

    with p.iterate("owned", (T, B), "SS", ("t", "b")) as (t, b):
        d, first_column = b // spec.grid, b % spec.grid * spec.width
        Sums = p.local(SHARED, (kept,), spec.dtype)
        Total = p.local("Total", (lane, warp, down, wide, four), "float32")
        fragments = (warp, down, wide, four, lane)
        with p.iterate("begin", fragments, "SSSSS", ("wb", "mb", "nb", "rb", "lb")) as (w, m, n, r, l):
            Total[l, w, m, n, r] = 0.0
        if lacking is not None:  # terms that the last step lacks
            width = covered - spec.in_features
            with p.iterate("lack_a", (lacking, warp, lane), "SSS", ("tz", "wz", "lz")) as (z, w, l):
                element = (z * warps + w) * LANES + l
                if lack % (warps * LANES):
                    p.where(element < lack)
                Sums[element // width * spec.stride + spec.in_features + element % width] = 0.0

        with p.iterate("each", (C,), "R", ("c",)) as (c,):
            Here = p.local("Here", (lane, warp, down, half), "int32")
            with p.iterate("look", (warp, down, half, lane), "SSSS", ("wl", "ml", "hl", "ll")) as (w, m, h, l):
                Here[l, w, m, h] = Present[t, c, of_warp(w, m, 0)[0] + l // 4 + h * 8]
            with p.iterate("gather", (warp, lane), "SS", ("wg", "lg")) as (w, l):
                Edge = p.local("Edge", (turn, part), "float32")

                def elements(name):
                    return p.iterate(name, (turn, part), "SS", (f"s_{name}", f"e_{name}"))

                def inside(s):
                    first = (s * spec.lanes + l % spec.lanes) * spec.part
                    if spec.in_features % (spec.lanes * spec.part):
                        p.where(first < spec.in_features)
                    return first

                with p.iterate("share", (U,), "S", ("u",)) as (u,):
                    p.where(equal(u, w * (LANES // spec.lanes) + l // spec.lanes))
                    with p.iterate("edges", (J,), "R", ("j",)) as (j,):
                        with elements("anew") as (s, e):
                            p.where(differ(Place[t, c, u, j] % 2, 0))
                            Edge[s, e] = 0.0
                        with elements("add") as (s, e):
                            value = cast("float32", X[j, d, inside(s) + e])
                            Edge[s, e] = Edge[s, e] + (value if A is None else A[t, c, u, j] * value)
                        with elements("keep") as (s, e):
                            Sums[Place[t, c, u, j] // 2 * spec.stride + inside(s) + e] = cast(spec.dtype, Edge[s, e])

            CF = p.local("CF", (lane, warp, down, wide, four), "float32")
            with p.iterate("clear", fragments, "SSSSS", ("wc", "mc", "nc", "rc", "lc")) as (w, m, n, r, l):
                CF[l, w, m, n, r] = 0.0
            with p.iterate("warps", (warp,), "S", ("w",)) as (w,):
                with p.iterate("steps", (step,), "R", ("s",)) as (s,):
                    AF = p.local("AF", (lane, down, four, pair), spec.dtype)
                    with p.iterate("load_a", (down, four, lane, pair), "SSSS", ("ma", "ra", "la", "qa")) as (m, r, l, e):
                        row = of_warp(w, m, 0)[0] + l // 4 + r % 2 * 8
                        AF[l, m, r, e] = Sums[row * spec.stride + s * (8 * q) + r // 2 * (4 * q) + l % 4 * q + e]
                    with p.iterate("across", (wide,), "S", ("nt",)) as (nt,):
                        BF = p.local("BF", (lane, half, side), spec.dtype)
                        if covered != spec.in_features:
                            with p.iterate("lack_b", (half, lane, side), "SSS", ("rz", "lz_b", "qz")) as (r, l, e):
                                BF[l, r, e] = 0.0
                        with p.iterate("load_b", (half, lane, side), "SSS", ("rb_b", "lb_b", "qb")) as (r, l, e):
                            first = s * (8 * q) + r * (4 * q) + l % 4 * q
                            if covered != spec.in_features:
                                p.where((first if spec.in_features % q == 0 else first + e) < spec.in_features)
                            column = first_column + of_warp(w, 0, nt)[1] + l // 4
                            if spec.out_features % spec.width:
                                column = minimum(column, as_expr(spec.out_features - 1))
                            BF[l, r, e] = W[Relation[t, c], d, column, first + e]
                        with p.iterate("down", (down,), "S", ("mt",)) as (mt,):
                            with p.iterate("mma", extents, "SSR", ("m", "n", "k")) as (m, n, k):
                                a = AF[(m % 8) * 4 + k % (4 * q) // q, mt, m // 8 + 2 * (k // (4 * q)), k % q]
                                x = BF[n * 4 + k % (4 * q) // q, k // (4 * q), k % q]
                                at = ((m % 8) * 4 + n // 2, w, mt, nt, (m // 8) * 2 + n % 2)
                                CF[at] = CF[at] + cast("float32", a) * cast("float32", x)
            with p.iterate("take", fragments, "SSSSS", ("wt", "mt_t", "nt_t", "rt", "lt")) as (w, m, n, r, l):
                p.where(differ(Here[l, w, m, r // 2], 0))
                Total[l, w, m, n, r] = Total[l, w, m, n, r] + CF[l, w, m, n, r]

        axes = (warp, down, wide, half, lane, out)
        with p.iterate("scatter", axes, "SSSSSS", ("wo", "mo", "no", "ho", "lo", "eo")) as (w, m, n, h, l, e):
            row, column = of_warp(w, m, n)
            row, column = row + l // 4 + h * 8, first_column + column + l % 4 * 2
            checks = [row < Stop[t] - Start[t]]
            if spec.out_features % spec.width:
                checks.append((column if spec.out_features % 2 == 0 else column + e) < spec.out_features)
            p.where(functools.reduce(both, checks))
            O[Row[Start[t] + row], d, column + e] = cast(spec.out_dtype, Total[l, w, m, n, h * 2 + e])
    return p.finish()


def _check(spec: RgmsRowsSpec) -> None:
    reason = refuses(spec.in_features, spec.out_features, spec.dtype)
    if reason:
        raise StageIError(f"rgms_rows: {reason}")
    if spec.in_features % spec.part or LANES % spec.lanes:
        raise StageIError(f"rgms_rows: parts of {spec.part} do not divide rows of {spec.in_features} features, or teams of {spec.lanes} "
                          f"lanes a warp of {LANES}")  # fmt: skip


__all__ = ["SHARED", "RgmsRowsSpec", "rgms_rows"]
