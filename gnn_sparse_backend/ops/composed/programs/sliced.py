"""Y = X A^T by slices of tokens, for any formats: a slice is transposed into a cache, and the product back from there.

    for each task, and slice of its tokens:
        P = X[tokens of the slice]^T
        for each piece, and row (of blocks):  S = 0, a bias, or what the piece before left;  S += A P;  R[row] = S
        Y[tokens of the slice] = R^T

A row of P is a few vectors, all rows together are held by a core's own cache, and so is R. So gathers find them there,
and what has another order in memory than operands have is never in memory.
"""

from __future__ import annotations

from ....compiler.language.axes import Axis
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, cast, minimum
from ....compiler.language.program import Program
from ...message.programs.operands import ACCUMULATOR
from .rules import ComposedSpec, composed

STRETCH = 16
"""Elements of a row that are transposed together: in float32 a cache line."""


def sliced(spec: ComposedSpec) -> Program:
    """The program. tile: tokens of a slice.

    Parameters: (num_tasks, m, n, tokens, slices, row_stretches, column_stretches, then those of the pieces, with
    slice_ptr (first slice of each task) among the index arrays; First (slices,), the first token of each; X (tokens,
    n), P (num_tasks, n, tile) and R (num_tasks, m, tile), which are written over, Y (tokens, m), B (m,) where there is
    a bias, and the values of the pieces). m and n are multiples of the sides of blocks, and at least `STRETCH`; the
    last stretch of a row begins so that it ends with the row.
    """
    p = ProgramBuilder("composed_sliced")
    tasks, m, n, nnz, tokens, slices, over_rows, over_columns = p.sizes(
        "num_tasks", "m", "n", "nnz", "tokens", "slices", "row_stretches", "column_stretches"
    )
    wide, index = ACCUMULATOR[spec.dtype], spec.index_dtype
    T = p.dense_fixed("T", tasks)
    K = p.dense_variable("K", T, (slices, slices), "slice_ptr", index)
    I, N, M, F = (p.dense_fixed(*axis) for axis in (("I", m), ("N", n), ("M", m), ("F", tokens)))
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"), index)
    C, L = p.dense_fixed("C", spec.tile), p.dense_fixed("L", STRETCH)
    BN, BM = p.dense_fixed("BN", over_columns), p.dense_fixed("BM", over_rows)
    First = p.buffer("First", (T, K), index)
    A = p.buffer("A", (I, J), spec.dtype)
    X, P = p.buffer("X", (F, N), spec.dtype), p.buffer("P", (T, N, C), wide)
    Y, R = p.buffer("Y", (F, M), spec.result), p.buffer("R", (T, M, C), wide)

    B = p.buffer("B", (I,), spec.dtype) if spec.bias else None

    def stretches(name: str, blocks: Axis, axis: Axis, copy) -> None:
        with p.iterate(name, (blocks, C), "SS", (f"b_{name}", f"c_{name}")) as (block, c):
            with p.iterate(f"{name}_stretch", (L,), "S", (f"l_{name}",)) as (l,):
                copy(minimum(block * STRETCH, as_expr(axis.length) - STRETCH) + l, c)

    with p.iterate("tasks", (T, K), "SS") as (t, k):

        def pack(column: Expr, c: Expr) -> None:
            P[t, column, c] = cast(wide, X[First[t, k] + c, column])

        def unpack(row: Expr, c: Expr) -> None:
            Y[First[t, k] + c, row] = cast(spec.result, R[t, row, c])

        stretches("pack", BN, N, pack)
        with p.iterate("rows", (I,), "S") as (i,):
            S = p.local("S", (C,), wide)
            with p.iterate("sum", (J, C), "RS") as (j, c):
                with p.init():
                    S[c] = 0.0 if B is None else cast(wide, B[i])
                S[c] = S[c] + cast(wide, A[i, j]) * P[t, j, c]
            with p.iterate("out", (C,), "S", ("c_out",)) as (c,):
                R[t, i, c] = S[c]
        stretches("unpack", BM, M, unpack)
    return composed(p.finish(), spec, "tasks", "A", None)
