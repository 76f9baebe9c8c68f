"""O = (U^T V) at the stored elements of a composed matrix, by slices of tokens, for operands as of a linear layer.

    for each task, and slice of its tokens:
        R = U[tokens of the slice]^T;  P = V[tokens of the slice]^T
        for each stored element (i, j):  O[task, element] += R[i] . P[j]

Rows of R and P are a few vectors, and all of them are held by a core's own cache, where whole rows of tokens are not.
What tasks have added up is added up by the caller.
"""

from __future__ import annotations

from ....compiler.language.axes import Axis
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, as_expr, cast, minimum
from ....compiler.language.program import Buffer, Program
from ...message.programs.operands import ACCUMULATOR
from .rules import ComposedSpec, composed
from .sliced import STRETCH


def sliced_sddmm(spec: ComposedSpec, lanes: int) -> Program:
    """The program of one piece. tile: tokens of a slice, a multiple of ``lanes``, which are a power of two.

    Parameters: (num_tasks, m, n, tokens, slices, row_stretches, column_stretches, then those of the piece, with
    slice_ptr (first slice of each task) among the index arrays; U (tokens, m), V (tokens, n), of whole slices; R
    (num_tasks, m, tile) and P (num_tasks, n, tile), which are written over; O (num_tasks, ...), which is added to).
    """
    p = ProgramBuilder("composed_sliced_sddmm")
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
    G, E = p.dense_fixed("G", spec.tile // lanes), p.dense_fixed("E", lanes)
    First = p.buffer("First", (T, K), index)
    U, R = p.buffer("U", (F, M), spec.dtype), p.buffer("R", (T, M, C), wide)
    V, P = p.buffer("V", (F, N), spec.dtype), p.buffer("P", (T, N, C), wide)
    O = p.buffer("O", (T, I, J), wide)

    def packed(name: str, over: Axis, axis: Axis, source: Buffer, target: Buffer, t: Expr, first: Expr) -> None:
        with p.iterate(name, (over, C), "SS", (f"b_{name}", f"c_{name}")) as (block, c):
            with p.iterate(f"{name}_stretch", (L,), "S", (f"l_{name}",)) as (l,):
                at = minimum(block * STRETCH, as_expr(axis.length) - STRETCH) + l
                target[t, at, c] = cast(wide, source[first + c, at])

    with p.iterate("tasks", (T, K), "SS") as (t, k):
        packed("rows", BM, M, U, R, t, First[t, k])
        packed("columns", BN, N, V, P, t, First[t, k])
        with p.iterate("elements", (I, J), "SS") as (i, j):
            S = p.local("S", (E,), wide)
            with p.iterate("zero", (E,), "S", ("e0",)) as (e,):
                S[e] = 0.0
            with p.iterate("steps", (G,), "R") as (g,), p.iterate("lanes", (E,), "S", ("e",)) as (e,):
                S[e] = S[e] + R[t, i, g * lanes + e] * P[t, j, g * lanes + e]
            half, whole = lanes // 2, S
            while half >= 1:
                H = p.dense_fixed(f"H{half}", half)
                part = p.local(f"S{half}", (H,), wide)
                with p.iterate(f"half{half}", (H,), "S") as (h,):
                    part[h] = whole[h] + whole[h + half]
                half, whole = half // 2, part
            O[t, i, j] = O[t, i, j] + whole[0]
    return composed(p.finish(), spec, "tasks", "O", None)
