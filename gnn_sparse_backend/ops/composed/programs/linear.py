"""Y = X A^T for a composed matrix A of blocks, as a linear layer has it: rows of X and Y are tokens.

    for each task of tokens, row of blocks, and token:
        S[rows of the block] = 0, or a bias;  S += A[block][column, rows] X[token, column];  Y[token, rows] = S

The product of `spmm` with the roles of the axes exchanged: the lanes of a vector are rows of the matrix, which blocks
store side by side, and an element of X is what they have in common. Nothing is transposed.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import cast
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....compiler.transforms.dense_axes.sink import sink_axis
from .rules import ComposedSpec, composed, name_of, within_of


def linear(spec: ComposedSpec) -> Program:
    """The program.

    Parameters: (num_tasks, m, n, tokens, then those of the pieces, with token_ptr (first token of each task) among the
    index arrays; X (tokens, n), Y (tokens, m), B (m,) where there is a bias, and the values of the pieces). m and n are
    multiples of the sides of blocks.
    """
    p = ProgramBuilder("composed_linear")
    tasks, m, n, nnz, tokens = p.sizes("num_tasks", "m", "n", "nnz", "tokens")
    wide, index = ACCUMULATOR[spec.dtype], spec.index_dtype
    T = p.dense_fixed("T", tasks)
    K = p.dense_variable("K", T, (tokens, tokens), "token_ptr", index)
    I, N = p.dense_fixed("I", m), p.dense_fixed("N", n)
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"), index)
    A = p.buffer("A", (I, J), spec.dtype)
    X = p.buffer("X", (T, K, N), spec.dtype)
    Y = p.buffer("Y", (T, K, I), spec.result)
    B = p.buffer("B", (I,), spec.dtype) if spec.bias else None
    with p.iterate("tasks", (T,), "S") as (t,), p.iterate("rows", (I,), "S") as (i,):
        with p.iterate("each", (K,), "S") as (k,):
            S = p.local("S", (), wide)
            with p.iterate("sum", (J,), "R") as (j,):
                with p.init():
                    S[()] = 0.0 if B is None else cast(wide, B[i])
                S[()] = S[()] + cast(wide, A[i, j]) * cast(wide, X[t, k, j])
            Y[t, k, i] = cast(spec.result, S[()])
    program = composed(p.finish(), spec, "tasks", "A", None)
    if spec.masked:
        return program
    for number, piece in enumerate(spec.pieces):
        name = name_of(number)
        program = sink_axis(program, f"rows_{name}", within_of(piece, name))
    return program
