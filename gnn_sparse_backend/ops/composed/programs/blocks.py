"""Y = A X, or Y = X A^T, for a matrix A of blocks on a GPU: blocks of warps multiply, on Tensor Cores or in lanes.

    for each row of blocks, matrix of the batch and stretch of the features of X (or of its tokens):
        C = 0;  for each block of the row: C += X[columns of the block] * block;  Y = C, or Y += C

What is accumulated has features down and rows of the matrix across, since blocks store rows side by side
(`core.tiles.row_products`). All that a block stores is multiplied: of blocks with padding 0 * Inf would be NaN, so that
is for `spmm`.
"""

from __future__ import annotations

from ....compiler.language.axes import StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, ExprLike, as_expr, cast, minimum
from ....compiler.language.program import Program
from ....frozen import dataclass
from ...core.tiles.accumulators import Accumulators
from ...core.tiles.row_products import BlockSpec, refuses_lanes


@dataclass(frozen=True)
class BlocksSpec(BlockSpec):
    """What is static, as of a `BlockSpec`: in_features are the columns of a block, out_features its rows.

    tokens: rows of X and Y are tokens, as of a linear layer. onto: what is there is added to. result: type of Y.
    """

    tokens: bool = False
    onto: bool = False
    dtype: str = "float32"
    result: str = "float32"
    index_dtype: str = "int32"


def blocks(spec: BlocksSpec) -> Program:
    """The program.

    Parameters: (mb, nb, nnzb, batch, rows, cols, features, stretches, grid, indptr, indices, A (batch, nnzb, columns,
    rows), X, Y), of a matrix of mb x nb blocks. X is (batch, cols, features) and Y (batch, rows, features); with
    ``tokens`` (batch, features, cols) and (batch, features, rows). There are ``stretches`` of `rows` features, and grid
    is batch * stretches.
    """
    reason = refuses_lanes(spec.dtype, spec.across)
    if not reason and spec.product.covered(spec.in_features) != spec.in_features:
        reason = f"tiles do not divide blocks of {spec.in_features} columns of {spec.dtype}"
    if not reason and spec.width < spec.out_features:
        reason = f"a block of warps has {spec.width} columns, and blocks {spec.out_features} rows"
    if reason:
        raise StageIError(f"composed_blocks: {reason}")
    p = ProgramBuilder("composed_blocks")
    mb, nb, nnzb, batch, rows, cols, features, stretches, grid = p.sizes(
        "mb", "nb", "nnzb", "batch", "rows", "cols", "features", "stretches", "grid"
    )
    depth, height = spec.in_features, spec.out_features
    IO, B, Z = p.dense_fixed("IO", mb), p.role_axis("B", grid, "grid"), p.dense_fixed("Z", batch)
    JO = p.sparse_variable("JO", IO, (nb, nnzb), ("indptr", "indices"), spec.index_dtype)
    JI, II = p.dense_fixed("JI", depth), p.dense_fixed("II", height)
    F, N, M = p.dense_fixed("F", features), p.dense_fixed("NX", cols), p.dense_fixed("MY", rows)
    A = p.buffer("A", (Z, IO, JO, JI, II), spec.dtype)
    X = p.buffer("X", (Z, F, N) if spec.tokens else (Z, N, F), spec.dtype)
    Y = p.buffer("Y", (Z, F, M) if spec.tokens else (Z, M, F), spec.result)
    products = Accumulators(p, spec)
    with p.iterate("tasks", (IO, B), "SS", ("io", "b")) as (io, b):
        z, first = b // as_expr(stretches), b % as_expr(stretches) * spec.rows

        def place(w: Expr, down: ExprLike, across: ExprLike) -> tuple[Expr, Expr]:
            row, column = spec.of_warp(w, down, across)
            return first + row, column

        def put(feature: Expr, row: Expr, value: Expr) -> None:
            at = (z, feature, io * height + row) if spec.tokens else (z, io * height + row, feature)
            value = cast(spec.result, value)
            Y[at] = Y[at] + value if spec.onto else value

        total = products.zeros("CF")
        with p.iterate("blocks", (JO,), "R", ("jo",)) as (jo,):

            def left(feature: Expr, term: Expr) -> Expr:
                feature, column = minimum(feature, as_expr(features) - 1), jo * depth + term
                return X[z, feature, column] if spec.tokens else X[z, column, feature]

            multiply = products.multiplier(
                depth,
                height,
                place,
                left,
                lambda row, term: A[z, io, jo, term, row],
                terms_aside=spec.tokens,
            )
            multiply(total)
        products.store(total, place, put, lambda feature: feature < as_expr(features))
    return p.finish()
