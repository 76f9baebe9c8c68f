"""Sparse convolution on a GPU in one pass: a block owns rows of the result (output-stationary, implicit GEMM).

    O[i] = sum over offsets k and pairs (j, i) of k of X[j] W[k]

A block of warps has a tile of rows and goes through the offsets that any of them has a pair of. For each it gathers the
rows of X through the table of neighbours, a window of channels at a time, leaves them in shared memory, and multiplies
them by the matrix of the offset, on Tensor Cores or in full precision (``row_products``). Rows are sorted by the set of
their offsets, so that few of a tile meet none (Tang et al., TorchSparse++, 2023): those are zeros in shared memory, and
what is multiplied of them is dropped, so that no Inf or NaN of a matrix reaches a row that has no pair of its offset.
Sums stay in registers until the last offset; every row is one block's, offsets come in their order: nothing is atomic,
and nothing is stored but the result.
"""

from __future__ import annotations

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, ExprLike, cast
from ....compiler.language.program import Program
from ....compiler.language.types import BYTES
from ....frozen import dataclass
from ....planner.cuda.tensor_cores import refuses
from ...core.tiles.accumulators import Accumulators
from ...core.tiles.matrices import Matrices
from ...core.tiles.row_products import BlockSpec, refuses_lanes
from ...core.tiles.shared_rows import PAD, SharedRows

SHARED = "Rows"


@dataclass(frozen=True)
class ConvTilesSpec(BlockSpec):
    """What is static, as of a `BlockSpec`. window: channels of a group that are kept at a time, all of them or a
    divisor of whole steps of the product. part: neighbouring channels that a lane loads together, which divides both;
    a power of two. groups: of channels. by_columns: as of `Matrices`.
    """

    window: int = 1
    part: int = 1
    groups: int = 1
    dtype: str = "float16"
    index_dtype: str = "int32"
    by_columns: bool = False

    @property
    def grid(self) -> int:
        """Blocks that the columns of a matrix take."""
        return -(-self.out_features // self.width)

    @property
    def kept(self) -> int:
        """Channels of a row in shared memory: those of a window, and zeros up to what instructions take."""
        return self.product.covered(self.window)

    @property
    def shared_bytes(self) -> int:
        return self.rows * (self.kept + PAD) * BYTES[self.dtype]


def conv_tiles(spec: ConvTilesSpec) -> Program:
    """The program.

    Parameters: (num_tiles, panels, cols, rows, offsets, panel_ptr, Offset, In, Row, X, W, O). Tile t has the rows
    Row[t, 0], Row[t, 1], ... of O, of which those it lacks are negative; its panel c is of offset Offset[c], and row m
    meets row In[c, m] of X there, none where that is negative. X is (cols, groups, F_in), W (offsets, groups, F_in,
    F_out) or by columns, O (rows, groups, F_out).
    """
    _check(spec)
    p = ProgramBuilder("conv_tiles")
    count, panels, cols, rows, offsets = p.sizes("num_tiles", "panels", "cols", "rows", "offsets")
    sums = Accumulators(p, spec)
    T = p.dense_fixed("T", count)
    C = p.dense_variable("C", T, (panels, panels), "panel_ptr", spec.index_dtype)
    B, D = p.role_axis("B", spec.groups * spec.grid, "grid"), p.dense_fixed("D", spec.groups)
    L = p.dense_fixed("L", spec.rows)
    Offset, In = p.buffer("Offset", (T, C), spec.index_dtype), p.buffer("In", (T, C, L), spec.index_dtype)
    Row = p.buffer("Row", (T, L), spec.index_dtype)
    FI, FO = p.dense_fixed("FI", spec.in_features), p.dense_fixed("FO", spec.out_features)
    X = p.buffer("X", (p.dense_fixed("NX", cols), D, FI), spec.dtype)
    W = Matrices(p, (p.dense_fixed("NW", offsets), D), FI, FO, spec.by_columns, spec.dtype)
    O = p.buffer("O", (p.dense_fixed("NO", rows), D, FO), spec.dtype)
    V = p.dense_fixed("V", spec.in_features // spec.window)
    kept = SharedRows(
        p, SHARED, "X", spec.rows, spec.kept, spec.in_features, spec.part, sums.warp, sums.lane, spec.dtype
    )
    with p.iterate("owned", (T, B), "SS", ("t", "b")) as (t, b):
        d, first = b // spec.grid, b % spec.grid * spec.width
        Total = sums.zeros("Total")

        def place(w: Expr, m: ExprLike, n: ExprLike) -> tuple[Expr, Expr]:
            row, column = spec.of_warp(w, m, n)
            return row, first + column

        with p.iterate("each", (C,), "R", ("c",)) as (c,):
            Here = p.local("Here", (sums.lane, sums.warp, sums.down, sums.half), spec.index_dtype)
            axes = sums.warp, sums.down, sums.half, sums.lane
            with p.iterate("look", axes, "SSSS", ("wl", "ml", "hl", "ll")) as (w, m, h, l):
                Here[l, w, m, h] = In[t, c, spec.of_warp(w, m, 0)[0] + spec.product.row(l, h)]
            CF = sums.zeros("CF")
            with p.iterate("windows", (V,), "R", ("v",)) as (v,):
                kept.start(v * spec.window)
                kept.load(lambda row: In[t, c, row] >= 0, lambda row, feature: X[In[t, c, row], d, feature])
                right = W[Offset[t, c], d]
                multiply = sums.multiplier(
                    spec.window,
                    spec.out_features,
                    place,
                    lambda row, term: kept[row, term],
                    lambda column, term: right(column, v * spec.window + term),
                    by_columns=spec.by_columns,
                )
                multiply(CF)
            with sums.each("take") as (w, m, n, r, l):
                p.where(Here[l, w, m, r // sums.near] >= 0)
                Total[l, w, m, n, r] = Total[l, w, m, n, r] + CF[l, w, m, n, r]

        def put(row: Expr, column: Expr, value: Expr) -> None:
            O[Row[t, row], d, column] = cast(spec.dtype, value)

        sums.store(Total, place, put, lambda row: Row[t, row] >= 0)
    return p.finish()


def _check(spec: ConvTilesSpec) -> None:
    reason = refuses(spec.in_features, spec.out_features, spec.dtype) or refuses_lanes(spec.dtype, spec.across)
    if reason:
        raise StageIError(f"conv_tiles: {reason}")
    whole = spec.window == spec.in_features or spec.kept == spec.window
    if spec.window < 1 or spec.in_features % spec.window or not whole:
        raise StageIError(
            f"conv_tiles: windows of {spec.window} channels do not divide {spec.in_features} in whole steps"
        )
    if spec.in_features % spec.part or spec.kept % spec.part:
        raise StageIError(f"conv_tiles: parts of {spec.part} do not divide {spec.in_features} channels")
