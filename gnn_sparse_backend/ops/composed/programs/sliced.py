"""Y = X A^T by slices of tokens, for any formats: a slice is transposed into a cache, and the product back from there.

    for each task, and slice of its tokens:
        P = X[tokens of the slice]^T
        for each piece, and row (of blocks):  S = 0, a bias, or what the piece before left;  S += A P;  R[row] = S
        Y[tokens of the slice] = R^T

A row of P is a few vectors, all rows together are held by a core's own cache, and so is R. So gathers find them there,
and what has another order in memory than operands have is never in memory.
"""

from __future__ import annotations

from collections.abc import Callable

from ....compiler.language.axes import Axis
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, cast, minimum
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from .rules import ComposedSpec, composed

STRETCH = 16
"""Elements of a row that are transposed together: in float32 a cache line."""


class Slices:
    """Axes of a program that goes by slices of tokens: tasks T, slices K of a task, tokens F, rows I and M, columns J
    and N, tokens of a slice C, stretches BM and BN of rows and columns. First: the first token of each slice.
    """

    def __init__(self, p: ProgramBuilder, spec: ComposedSpec) -> None:
        tasks, m, n, nnz, tokens, slices, over_rows, over_columns = p.sizes(
            "num_tasks", "m", "n", "nnz", "tokens", "slices", "row_stretches", "column_stretches"
        )
        self.p, self.wide, index = p, ACCUMULATOR[spec.dtype], spec.index_dtype
        self.turned = spec.turned
        self.T = p.dense_fixed("T", tasks)
        self.K = p.dense_variable("K", self.T, (slices, slices), "slice_ptr", index)
        self.I, self.N, self.M, self.F = (
            p.dense_fixed(*axis) for axis in (("I", m), ("N", n), ("M", m), ("F", tokens))
        )
        self.J = p.sparse_variable("J", self.I, (n, nnz), ("indptr", "indices"), index)
        self.C, self.L = p.dense_fixed("C", spec.tile), p.dense_fixed("L", STRETCH)
        self.BN, self.BM = p.dense_fixed("BN", over_columns), p.dense_fixed("BM", over_rows)
        self.First = p.buffer("First", (self.T, self.K), index)

    def stretches(self, name: str, blocks: Axis, axis: Axis, copy: Callable[[Expr, Expr], None]) -> None:
        """Call copy(element of the axis, token of the slice) for all, `STRETCH` elements of a token at once; where
        slices are ``turned``, those of all tokens.
        """
        if self.turned:
            with self.p.iterate(name, (blocks,), "S", (f"b_{name}",)) as (block,):
                names = f"c_{name}", f"l_{name}"
                with self.p.iterate(f"{name}_stretch", (self.C, self.L), "SS", names) as (c, l):
                    copy(minimum(block * STRETCH, as_expr(axis.length) - STRETCH) + l, c)
            return
        with self.p.iterate(name, (blocks, self.C), "SS", (f"b_{name}", f"c_{name}")) as (block, c):
            with self.p.iterate(f"{name}_stretch", (self.L,), "S", (f"l_{name}",)) as (l,):
                copy(minimum(block * STRETCH, as_expr(axis.length) - STRETCH) + l, c)


def sliced(spec: ComposedSpec) -> Program:
    """The program. tile: tokens of a slice.

    Parameters: (num_tasks, m, n, tokens, slices, row_stretches, column_stretches, then those of the pieces, with
    slice_ptr (first slice of each task) among the index arrays; First (slices,), the first token of each; X (tokens,
    n), P (num_tasks, n, tile) and R (num_tasks, m, tile), which are written over, Y (tokens, m), B (m,) where there is
    a bias, and the values of the pieces). m and n are multiples of the sides of blocks, and at least `STRETCH`; the
    last stretch of a row begins so that it ends with the row.
    """
    p = ProgramBuilder("composed_sliced")
    of = Slices(p, spec)
    wide, I, J, C = of.wide, of.I, of.J, of.C
    A = p.buffer("A", (I, J), spec.dtype)
    X, P = p.buffer("X", (of.F, of.N), spec.dtype), p.buffer("P", (of.T, of.N, C), wide)
    Y, R = p.buffer("Y", (of.F, of.M), spec.result), p.buffer("R", (of.T, of.M, C), wide)
    B = p.buffer("B", (I,), spec.dtype) if spec.bias else None

    with p.iterate("tasks", (of.T, of.K), "SS") as (t, k):
        first = of.First[t, k]

        def pack(column: Expr, c: Expr) -> None:
            P[t, column, c] = cast(wide, X[first + c, column])

        def unpack(row: Expr, c: Expr) -> None:
            Y[first + c, row] = cast(spec.result, R[t, row, c])

        of.stretches("pack", of.BN, of.N, pack)
        with p.iterate("rows", (I,), "S") as (i,):
            S = p.local("S", (C,), wide)
            with p.iterate("sum", (J, C), "RS") as (j, c):
                with p.init():
                    S[c] = 0.0 if B is None else cast(wide, B[i])
                S[c] = S[c] + cast(wide, A[i, j]) * P[t, j, c]
            with p.iterate("out", (C,), "S", ("c_out",)) as (c,):
                R[t, i, c] = S[c]
        of.stretches("unpack", of.BM, of.M, unpack)
    return composed(p.finish(), spec, "tasks", "A", None)
