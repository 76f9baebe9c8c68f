"""O = (U V^T) at the stored elements of a composed matrix, padding included, which the caller clears.

Two programs, of which each suits some formats. Where blocks are stored, operands come term by term, and a vector of the
rows of a block meets the columns one by one. Elsewhere they come row by row, and the lanes of a vector are terms.
"""

from __future__ import annotations

from ....compiler.language.axes import Axis
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import as_expr, cast
from ....compiler.language.program import Program
from ....compiler.language.types import ACCUMULATOR
from ....compiler.transforms.dense_axes.sink import sink_axis
from .rules import ComposedSpec, composed, name_of, within_of


def by_terms(spec: ComposedSpec) -> bool:
    """Whether the operands of a piece come term by term. The spec has one piece."""
    return spec.pieces[0].beside


def sddmm(spec: ComposedSpec) -> Program:
    """The program of one piece.

    Parameters: (num_tasks, m, n, batch, terms, [lane_terms, rest,] then those of the piece, with row_ptr among the
    index arrays; U (batch, terms, m), V (batch, terms, n), or U (batch, m, terms), V (batch, n, terms); O (batch,
    ...)). tile: lanes, where they are terms; lane_terms is terms // tile, and rest what is left.
    """
    p = ProgramBuilder("composed_sddmm")
    tasks, m, n, nnz, batch, terms = p.sizes("num_tasks", "m", "n", "nnz", "batch", "terms")
    wide, index = ACCUMULATOR[spec.dtype], spec.index_dtype
    T = p.dense_fixed("T", tasks)
    I = p.dense_variable("I", T, (m, m), "row_ptr", index)
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"), index)
    Z, N, K = p.role_axis("Z", batch, "grid" if spec.grid else ""), p.dense_fixed("N", n), p.dense_fixed("K", terms)
    if by_terms(spec):
        U, V = p.buffer("U", (Z, K, T, I), spec.dtype), p.buffer("V", (Z, K, N), spec.dtype)
        O = p.buffer("O", (Z, T, I, J), spec.result)
        with p.iterate("tasks", (T, Z), "SS") as (t, z), p.iterate("elements", (I, J), "SS") as (i, j):
            S = p.local("S", (), wide)
            with p.iterate("sum", (K,), "R") as (k,):
                with p.init():
                    S[()] = 0.0
                S[()] = S[()] + cast(wide, U[z, k, t, i]) * cast(wide, V[z, k, j])
            O[z, t, i, j] = cast(spec.result, S[()])
        program = composed(p.finish(), spec, "tasks", "O", "T")
        name = name_of(0)
        return sink_axis(program, f"elements_{name}", within_of(spec.pieces[0], name))
    if spec.grid:
        return _in_lanes(p, spec, (T, I, J, Z, N, K))
    count, rest = p.sizes("lane_terms", "rest")
    G, R, L = p.dense_fixed("G", count), p.dense_fixed("R", rest), p.dense_fixed("L", spec.tile)
    U, V = p.buffer("U", (Z, T, I, K), spec.dtype), p.buffer("V", (Z, N, K), spec.dtype)
    O = p.buffer("O", (Z, T, I, J), spec.result)
    with p.iterate("tasks", (T, Z), "SS") as (t, z), p.iterate("elements", (I, J), "SS") as (i, j):
        S, Sum = p.local("S", (L,), wide), p.local("Sum", (), wide)
        with p.iterate("zero", (L,), "S", ("l0",)) as (l,):
            S[l] = 0.0
        with p.iterate("steps", (G,), "R") as (g,), p.iterate("lanes", (L,), "S", ("l",)) as (l,):
            k = g * spec.tile + l
            S[l] = S[l] + cast(wide, U[z, t, i, k]) * cast(wide, V[z, j, k])
        Sum[()] = 0.0
        with p.iterate("total", (L,), "R", ("l1",)) as (l,):
            Sum[()] = Sum[()] + S[l]
        with p.iterate("tail", (R,), "R") as (r,):
            k = r + as_expr(count) * spec.tile
            Sum[()] = Sum[()] + cast(wide, U[z, t, i, k]) * cast(wide, V[z, j, k])
        O[z, t, i, j] = cast(spec.result, Sum[()])
    return composed(p.finish(), spec, "tasks", "O", "T")


def _in_lanes(p: ProgramBuilder, spec: ComposedSpec, axes: tuple[Axis, ...]) -> Program:
    """The second program for a GPU: every lane has terms of its own, and lanes add up what they have.

    Parameters: (num_tasks, m, n, batch, terms, lane_terms, ...), where lane_terms are those of a lane at most.
    """
    T, I, J, Z, N, K = axes
    wide, terms = ACCUMULATOR[spec.dtype], as_expr(K.length)
    G, L = p.dense_fixed("G", p.size("lane_terms")), p.role_axis("L", spec.tile, "lane")
    U, V = p.buffer("U", (Z, T, I, K), spec.dtype), p.buffer("V", (Z, N, K), spec.dtype)
    O = p.buffer("O", (Z, T, I, J), spec.result)
    with p.iterate("tasks", (T, Z), "SS") as (t, z), p.iterate("elements", (I, J), "SS") as (i, j):
        S, Sum = p.local("S", (L,), wide), p.local("Sum", (), wide)
        with p.iterate("zero", (L,), "S", ("l0",)) as (l,):
            S[l] = 0.0
        with p.iterate("steps", (G,), "R") as (g,), p.iterate("lanes", (L,), "S", ("l",)) as (l,):
            k = g * spec.tile + l
            p.where(k < terms)
            S[l] = S[l] + cast(wide, U[z, t, i, k]) * cast(wide, V[z, j, k])
        with p.iterate("total", (L,), "R", ("l1",)) as (l,):
            with p.init():
                Sum[()] = 0.0
            Sum[()] = Sum[()] + S[l]
        O[z, t, i, j] = cast(spec.result, Sum[()])
    return composed(p.finish(), spec, "tasks", "O", "T")
