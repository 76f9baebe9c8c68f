"""SpMM as the torch operator runs it: C[i] = sum over j in row i of A[i, j] * B[j].

Rows come in groups (a ragged axis over a dense one), so that a parallel loop over groups of equal cost is balanced
whatever the degrees are. Sums are accumulated in a local buffer of at least float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..coordinate.builder import ProgramBuilder
from ..coordinate.expr import cast, maximum
from ..coordinate.program import Program

ACCUMULATOR = {"float64": "float64", "float32": "float32", "float16": "float32", "bfloat16": "float32"}


@dataclass(frozen=True)
class SpmmSpec:
    """What is static in an SpMM kernel.

    features: width of a dense row, all heads together.
    heads: number of weights per edge (1 where unweighted); head h scales features [h * D, (h + 1) * D).
    dtype: value type of A, B and C. index_dtype: type of indptr, indices and edge ids.
    weighted: multiply by A. edge_ids: A is in another order; edge_ids gives the place of each non-zero.
    mean: divide each row by its number of non-zeros. source_scale: multiply row j of B by S[j].
    """

    features: int
    heads: int = 1
    dtype: str = "float32"
    index_dtype: str = "int32"
    weighted: bool = False
    edge_ids: bool = False
    mean: bool = False
    source_scale: bool = False


def spmm(spec: SpmmSpec) -> Program:
    """The program: parameters (num_groups, m, n, nnz, group_ptr, indptr, indices, [E], [A], [S], [D], B, C)."""
    accumulator = ACCUMULATOR[spec.dtype]
    p = ProgramBuilder("spmm")
    num_groups, m, n, nnz = p.sizes("num_groups", "m", "n", "nnz")
    G = p.dense_fixed("G", num_groups)
    I = p.dense_variable("I", G, (m, m), "group_ptr", spec.index_dtype)
    J = p.sparse_variable("J", I, (n, nnz), ("indptr", "indices"), spec.index_dtype, sorted=False, unique=False)
    N = p.dense_fixed("N", n)
    K = p.dense_fixed("K", spec.features)
    if spec.edge_ids:
        E = p.buffer("E", (G, I, J), spec.index_dtype)
    if spec.weighted:
        # weights may be longer than the non-zeros: a graph may be a part of the one they were made for
        edges = (p.dense_fixed("Z", p.size("num_weights")),) if spec.edge_ids else (G, I, J)
        A = p.buffer("A", edges + ((p.dense_fixed("H", spec.heads),) if spec.heads > 1 else ()), spec.dtype)
    if spec.source_scale:
        S = p.buffer("S", (N,), accumulator)
    if spec.mean:
        D = p.buffer("D", (G, I), spec.index_dtype)
    B = p.buffer("B", (N, K), spec.dtype, strided=True)
    C = p.buffer("C", (G, I, K), spec.dtype)
    with p.iterate("rows", (G, I), "SS") as (g, i):
        Sum = p.local("Sum", (K,), accumulator)
        with p.iterate("sum", (J, K), "RS") as (j, k):
            with p.init():
                Sum[k] = 0.0
            term = cast(accumulator, B[j, k])
            if spec.weighted:
                edge = (E[g, i, j],) if spec.edge_ids else (g, i, j)
                head = (k // (spec.features // spec.heads),) if spec.heads > 1 else ()
                term = cast(accumulator, A[edge + head]) * term
            if spec.source_scale:
                term = S[j] * term
            Sum[k] = Sum[k] + term
        with p.iterate("out", (K,), "S", ("f",)) as (f,):
            total = Sum[f]
            if spec.mean:
                total = total / maximum(cast(accumulator, D[g, i]), 1.0)
            C[g, i, f] = cast(spec.dtype, total)
    return p.finish()
