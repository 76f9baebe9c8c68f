"""SDDMM as the torch operator runs it: O[e] = dot(U[i], V[j]) for each non-zero e = (i, j)."""

from __future__ import annotations

from dataclasses import dataclass

from ..coordinate.builder import ProgramBuilder
from ..coordinate.expr import cast
from ..coordinate.program import Program
from .spmm import ACCUMULATOR


@dataclass(frozen=True)
class SddmmSpec:
    """What is static in an SDDMM kernel.

    features: width of a dense row, all heads together. heads: dot products per non-zero, each over features / heads.
    edge_ids: the result is in another order than the non-zeros; edge_ids gives the place of each.
    row_scale: multiply row i by S[i].
    """

    features: int
    heads: int = 1
    dtype: str = "float32"
    index_dtype: str = "int32"
    edge_ids: bool = False
    row_scale: bool = False


def sddmm(spec: SddmmSpec) -> Program:
    """The program: parameters (num_groups, m, n, nnz, [num_results], group_ptr, indptr, indices, [E], [S], U, V, O)."""
    accumulator = ACCUMULATOR[spec.dtype]
    width = spec.features // spec.heads
    p = ProgramBuilder("sddmm")
    num_groups, m, n, nnz = p.sizes("num_groups", "m", "n", "nnz")
    G = p.dense_fixed("G", num_groups)
    I = p.dense_variable("I", G, (m, m), "group_ptr", spec.index_dtype)
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"), spec.index_dtype, sorted=False, unique=False)
    N = p.dense_fixed("N", n)
    F = p.dense_fixed("F", spec.features)
    H = p.dense_fixed("H", spec.heads)
    K = p.dense_fixed("K", width)
    if spec.edge_ids:
        E = p.buffer("E", (G, I, J), spec.index_dtype)
    if spec.row_scale:
        S = p.buffer("S", (G, I), accumulator)
    U = p.buffer("U", (G, I, F), spec.dtype, strided=True)
    V = p.buffer("V", (N, F), spec.dtype, strided=True)
    results = (p.dense_fixed("Z", p.size("num_results")),) if spec.edge_ids else (G, I, J)
    O = p.buffer("O", results + (H,), spec.dtype)
    with p.iterate("edges", (G, I, J, H), "SSSS") as (g, i, j, h):
        Dot = p.local("Dot", (), accumulator)
        with p.iterate("dot", (K,), "R") as (k,):
            with p.init():
                Dot[()] = 0.0
            u = cast(accumulator, U[g, i, h * width + k])
            Dot[()] = Dot[()] + u * cast(accumulator, V[j, h * width + k])
        total = Dot[()]
        if spec.row_scale:
            total = S[g, i] * total
        edge = (E[g, i, j],) if spec.edge_ids else (g, i, j)
        O[edge + (h,)] = cast(spec.dtype, total)
    return p.finish()
