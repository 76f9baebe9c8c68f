"""O = (U^T V) at the stored elements of a composed matrix, by slices of tokens, for operands as of a linear layer.

    for each task, and slice of its tokens:
        R = U[tokens of the slice]^T;  P = V[tokens of the slice]^T
        for each stored element (i, j):  O[task, element] += R[i] . P[j]

Rows of R and P are a few vectors, and all of them are held by a core's own cache, where whole rows of tokens are not.
What tasks have added up is added up by the caller.
"""

from __future__ import annotations

from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, cast
from ....compiler.language.program import Program
from .rules import ComposedSpec, composed
from .sliced import Slices


def sliced_sddmm(spec: ComposedSpec) -> Program:
    """The program of one piece. tile: tokens of a slice.

    Parameters: (num_tasks, m, n, tokens, slices, row_stretches, column_stretches, then those of the piece, with
    slice_ptr (first slice of each task) among the index arrays; U (tokens, m), V (tokens, n), of whole slices; R
    (num_tasks, m, tile) and P (num_tasks, n, tile), which are written over; O (num_tasks, ...), which is added to).
    """
    p = ProgramBuilder("composed_sliced_sddmm")
    of = Slices(p, spec)
    wide, I, J, C = of.wide, of.I, of.J, of.C
    U, R = p.buffer("U", (of.F, of.M), spec.dtype), p.buffer("R", (of.T, of.M, C), wide)
    V, P = p.buffer("V", (of.F, of.N), spec.dtype), p.buffer("P", (of.T, of.N, C), wide)
    O = p.buffer("O", (of.T, I, J), wide)

    with p.iterate("tasks", (of.T, of.K), "SS") as (t, k):
        first = of.First[t, k]

        def pack_row(row: Expr, c: Expr) -> None:
            R[t, row, c] = cast(wide, U[first + c, row])

        def pack_column(column: Expr, c: Expr) -> None:
            P[t, column, c] = cast(wide, V[first + c, column])

        of.stretches("rows", of.BM, of.M, pack_row)
        of.stretches("columns", of.BN, of.N, pack_column)
        with p.iterate("elements", (I, J), "SS") as (i, j):
            S = p.local("S", (), wide)
            with p.iterate("dot", (C,), "R", ("c",)) as (c,):
                with p.init():
                    S[()] = 0.0
                S[()] = S[()] + R[t, i, c] * P[t, j, c]
            O[t, i, j] = O[t, i, j] + S[()]
    return composed(p.finish(), spec, "tasks", "O", None)
