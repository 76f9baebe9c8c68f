"""Y = A X for a composed matrix A: task after task of rows, tile after tile of columns, piece after piece.

    for each task, matrix of the batch and tile of columns:
        for each piece:
            for each row (of blocks): S = 0, or what the piece before left;  S += A X;  Y = S

Pieces are passes over the rows of one task, so that what one leaves is in the cache when the next goes on from it, and
no two tasks write a row.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import as_expr, cast, minimum
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from .rules import ComposedSpec, composed


def spmm(spec: ComposedSpec) -> Program:
    """The program.

    Parameters: (num_tasks, m, n, batch, features, column_tiles, [grid,] then those of the pieces, with row_ptr (first
    row of each task) among the index arrays; X (batch, n, features), Y (batch, m, features), and the values of the
    pieces (batch, ...)). m and n are multiples of the sides of blocks. The last tile begins so that it ends with the
    features, of which there are as many as in a tile at least: what it has in common with the one before is computed
    twice. Of a spec that is ``whole`` there is no parameter features.
    """
    p = ProgramBuilder("composed_spmm")
    tasks, m, n, nnz, batch, features, tiles = p.sizes(
        "num_tasks", "m", "n", "nnz", "batch", "features", "column_tiles"
    )
    wide, index = ACCUMULATOR[spec.dtype], spec.index_dtype
    T = p.dense_fixed("T", tasks)
    I = p.dense_variable("I", T, (m, m), "row_ptr", index)
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"), index)
    Z, Q, N = p.dense_fixed("Z", batch), p.dense_fixed("Q", tiles), p.dense_fixed("N", n)
    # as one axis, of batch * column_tiles elements
    B = p.role_axis("B", p.size("grid"), "grid") if spec.grid else None
    K, C = p.dense_fixed("K", spec.tile if spec.whole else features), p.dense_fixed("C", spec.tile)
    A = p.buffer("A", (Z, T, I, J), spec.dtype)
    X = p.buffer("X", (Z, N, K), wide if spec.widened else spec.dtype)
    Y = p.buffer("Y", (Z, T, I, K), spec.result)
    axes, names = ((T, Z, Q), ("t", "z", "q")) if B is None else ((T, B), ("t", "b"))
    with p.iterate("tasks", axes, "S" * len(axes), names) as (t, *rest):
        z, q = rest if B is None else (rest[0] // as_expr(tiles), rest[0] % as_expr(tiles))
        first = as_expr(0) if spec.whole else minimum(q * spec.tile, as_expr(features) - spec.tile)
        with p.iterate("rows", (I,), "S") as (i,):
            S = p.local("S", (C,), wide)
            with p.iterate("sum", (J, C), "RS") as (j, c):
                with p.init():
                    S[c] = 0.0
                S[c] = S[c] + cast(wide, A[z, t, i, j]) * cast(wide, X[z, j, first + c])
            with p.iterate("out", (C,), "S", ("k",)) as (c,):
                Y[z, t, i, first + c] = cast(spec.result, S[c])
    return composed(p.finish(), spec, "tasks", "A", "T")
