"""Relational gather-matmul-scatter on a GPU in one pass: a block owns rows of the result, and no product is stored.

    O[i] = sum over relations r of (sum over the edges e of i and r of A[e] * X[j(e)]) W[r]

(RGMS; Ye et al., SparseTIR, section 4.4.) A block of warps has a tile of rows and goes through the relations of their
edges. For each it gathers the rows of X, adds them up in registers, leaves the sums in shared memory, at the place of
their row in the tile, and multiplies them, on Tensor Cores or in full precision (``row_products`` has both). Products
of rows that have edges of the relation are added to sums that stay in the registers of the lanes which hold the
products; the others, of whatever lay in shared memory, are dropped, so that no Inf or NaN of a matrix reaches a row
that it is not for. In the end the lanes scatter the sums to the rows. All relations are one launch, every row is one
block's, relations come in their order: nothing is atomic.

Lanes gather in teams as wide as a row, and a team goes through its share of the edges one by one, whatever pairs they
belong
to: it begins anew where an edge is the first of its row and relation, and leaves the sum in shared memory after each.
So no loop is as short as the edges of a pair, which are one or two in most graphs, and every team of a warp has a row
on its way.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, ExprLike, Var, cast, differ, equal
from ....compiler.language.program import Program
from ....compiler.language.types import BYTES
from ....frozen import dataclass
from ....planner.cuda.tensor_cores import LANES, refuses
from ...core.tiles.accumulators import Accumulators
from ...core.tiles.matrices import Matrices
from ...core.tiles.row_products import BlockSpec, refuses_lanes
from .owned_rows import OwnedRows, stride_of

SHARED = "Sums"


@dataclass(frozen=True)
class RgmsRowsSpec(BlockSpec):
    """What is static, as of a `BlockSpec`, with the rows of a tile at most for a block's. lanes: of a team that loads a
    row of X, in parts of `part` neighbouring elements, which divides ``in_features``; both powers of two. out_dtype: of
    O. The rest as in an `RgmsTilesSpec`."""

    lanes: int = LANES
    part: int = 1
    weighted: bool = False
    blocks: int = 1
    dtype: str = "float16"
    out_dtype: str = "float16"
    index_dtype: str = "int32"
    by_columns: bool = False

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
        """Elements from row to row of the sums."""
        return stride_of(self.product.covered(self.in_features), self.dtype)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory for the sums."""
        return self.rows * self.stride * BYTES[self.dtype]


def rgms_rows(spec: RgmsRowsSpec) -> Program:
    """The program.

    Parameters: (num_tiles, panels, shares, nnz, cols, relations, rows, panel_ptr, owned_ptr, share_ptr, indices, Start,
    Stop, Relation, Place, Present, [A], Row, X, W, O), as of `owned_rows`: tile t has the rows Row[Start[t]], ...,
    Row[Stop[t] - 1], panel c has `spec.shares` shares. X is (cols, blocks, F_in), W (relations, blocks, F_in, F_out) or
    by columns, O (rows, blocks, F_out).
    """
    _check(spec)
    product, covered = spec.product, spec.product.covered(spec.in_features)
    p = ProgramBuilder("rgms_rows")
    tiles, sums = OwnedRows(p, spec, "rows"), Accumulators(p, spec)
    T, C, U, J, warp, lane = tiles.T, tiles.C, tiles.U, tiles.J, sums.warp, sums.lane
    B, D = p.role_axis("B", spec.blocks * spec.grid, "grid"), p.dense_fixed("D", spec.blocks)
    Present = p.buffer("Present", (T, C, p.dense_fixed("L", spec.rows)), "uint8")
    A = p.buffer("A", (T, C, U, J), "float32") if spec.weighted else None
    NO = p.dense_fixed("NO", tiles.more[0])
    Row = p.buffer("Row", (NO,), spec.index_dtype)
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    X = p.buffer("X", (p.dense_fixed("NX", tiles.cols), D, FI), spec.dtype)
    W = Matrices(p, (p.dense_fixed("NW", tiles.relations), D), FI, FO, spec.by_columns, spec.dtype)
    O = p.buffer("O", (NO, D, FO), spec.out_dtype)
    turn = p.role_axis("X", -(-spec.in_features // (spec.lanes * spec.part)), "turn")
    part = p.role_axis("X", spec.part, "part")
    kept = p.dense_fixed("Kept", spec.rows * spec.stride)
    lack = spec.rows * (covered - spec.in_features)
    lacking = p.role_axis("Z", -(-lack // sums.threads), "turn") if lack else None

    with p.iterate("owned", (T, B), "SS", ("t", "b")) as (t, b):
        d, first_column = b // spec.grid, b % spec.grid * spec.width
        Sums = p.local(SHARED, (kept,), spec.dtype)
        Total = sums.zeros("Total")
        if lacking is not None:  # terms that the last step lacks
            width = covered - spec.in_features
            with p.iterate("lack_a", (lacking, warp, lane), "SSS", ("tz", "wz", "lz")) as (z, w, l):
                element = (z * warp.length + w) * LANES + l
                if lack % sums.threads:
                    p.where(element < lack)
                Sums[element // width * spec.stride + spec.in_features + element % width] = 0.0

        def place(w: Expr, m: ExprLike, n: ExprLike) -> tuple[Expr, Expr]:
            row, column = spec.of_warp(w, m, n)
            return row, first_column + column

        with p.iterate("each", (C,), "R", ("c",)) as (c,):
            Here = p.local("Here", (lane, warp, sums.down, sums.half), "int32")
            looked = warp, sums.down, sums.half, lane
            with p.iterate("look", looked, "SSSS", ("wl", "ml", "hl", "ll")) as (w, m, h, l):
                Here[l, w, m, h] = Present[t, c, spec.of_warp(w, m, 0)[0] + product.row(l, h)]
            with p.iterate("gather", (warp, lane), "SS", ("wg", "lg")) as (w, l):
                Edge = p.local("Edge", (turn, part), "float32")

                def elements(name: str) -> AbstractContextManager[tuple[Var, ...]]:
                    return p.iterate(name, (turn, part), "SS", (f"s_{name}", f"e_{name}"))

                def inside(s: Expr) -> Expr:
                    first = (s * spec.lanes + l % spec.lanes) * spec.part
                    if spec.in_features % (spec.lanes * spec.part):
                        p.where(first < spec.in_features)
                    return first

                with p.iterate("share", (U,), "S", ("u",)) as (u,):
                    p.where(equal(u, w * (LANES // spec.lanes) + l // spec.lanes))
                    with p.iterate("edges", (J,), "R", ("j",)) as (j,):
                        with elements("anew") as (s, e):
                            p.where(differ(tiles.Place[t, c, u, j] % 2, 0))
                            Edge[s, e] = 0.0
                        with elements("add") as (s, e):
                            value = cast("float32", X[j, d, inside(s) + e])
                            Edge[s, e] = Edge[s, e] + (value if A is None else A[t, c, u, j] * value)
                        with elements("keep") as (s, e):
                            Sums[tiles.Place[t, c, u, j] // 2 * spec.stride + inside(s) + e] = cast(
                                spec.dtype, Edge[s, e]
                            )

            multiply = sums.multiplier(
                spec.in_features,
                spec.out_features,
                place,
                lambda row, term: Sums[row * spec.stride + term],
                W[tiles.Relation[t, c], d],
                by_columns=spec.by_columns,
            )
            CF = sums.zeros("CF")
            multiply(CF)
            with sums.each("take") as (w, m, n, r, l):
                p.where(differ(Here[l, w, m, r // sums.near], 0))
                Total[l, w, m, n, r] = Total[l, w, m, n, r] + CF[l, w, m, n, r]

        def put(row: Expr, column: Expr, value: Expr) -> None:
            O[Row[tiles.Start[t] + row], d, column] = cast(spec.out_dtype, value)

        sums.store(Total, place, put, lambda row: row < tiles.Stop[t] - tiles.Start[t])
    return p.finish()


def _check(spec: RgmsRowsSpec) -> None:
    reason = refuses(spec.in_features, spec.out_features, spec.dtype) or refuses_lanes(spec.dtype, spec.across)
    if reason:
        raise StageIError(f"rgms_rows: {reason}")
    if spec.in_features % spec.part or LANES % spec.lanes:
        raise StageIError(
            f"rgms_rows: parts of {spec.part} do not divide rows of {spec.in_features} features, or teams of "
            f"{spec.lanes} lanes a warp of {LANES}"
        )
