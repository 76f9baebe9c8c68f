"""Operators on hypergraphs and on graphs with relations."""

from __future__ import annotations

from ..language.builder import ProgramBuilder
from ..language.program import Program


def hypergraph_convolution(features: int, dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """Z[v] = sum over hyperedges e of v of Y[e], Y[e] = sum over vertices u of e of X[u] (a temporary between them)."""
    p = ProgramBuilder("hypergraph_convolution")
    vertices, edges, nnz = p.sizes("vertices", "edges", "nnz")
    E = p.dense_fixed("E", edges)
    U = p.sparse_variable("U", E, (vertices, nnz), ("U_indptr", "U_indices"), index_dtype)
    V = p.dense_fixed("V", vertices)
    W = p.sparse_variable("W", V, (edges, nnz), ("W_indptr", "W_indices"), index_dtype)
    K = p.dense_fixed("K", features)
    X = p.buffer("X", (V, K), dtype)
    Y = p.temporary("Y", (E, K), dtype)
    Z = p.buffer("Z", (V, K), dtype)
    with p.iterate("gather", (E, U, K), "SRS") as (e, u, k):
        with p.init():
            Y[e, k] = 0.0
        Y[e, k] = Y[e, k] + X[u, k]
    with p.iterate("scatter", (V, W, K), "SRS") as (v, w, k):
        with p.init():
            Z[v, k] = 0.0
        Z[v, k] = Z[v, k] + Y[w, k]
    return p.finish()


def rgms_homogeneous(
    in_features: int, out_features: int, dtype: str = "float32", index_dtype: str = "int32"
) -> Program:
    """Y[i] = sum over j of X[j] W[T[i, j]]: relational gather-matmul-scatter with a relation per non-zero."""
    p = ProgramBuilder("rgms_homogeneous")
    m, n, nnz, relations = p.sizes("m", "n", "nnz", "relations")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), index_dtype, sorted=False, unique=False)
    N = p.dense_fixed("N", n)
    R = p.dense_fixed("R", relations)
    FI = p.dense_fixed("FI", in_features)
    FO = p.dense_fixed("FO", out_features)
    Type = p.buffer("Type", (I, J), index_dtype)
    X = p.buffer("X", (N, FI), dtype)
    W = p.buffer("W", (R, FI, FO), dtype)
    Y = p.buffer("Y", (I, FO), dtype)
    with p.iterate("rgms", (I, J, FI, FO), "SRRS") as (i, j, fi, fo):
        with p.init():
            Y[i, fo] = 0.0
        Y[i, fo] = Y[i, fo] + X[j, fi] * W[Type[i, j], fi, fo]
    return p.finish()


def rgms_heterogeneous(
    in_features: int, out_features: int, dtype: str = "float32", index_dtype: str = "int32"
) -> Program:
    """Y[i] = sum over r and j of A[r, i, j] * X[j] W[r], the non-zeros grouped by relation and then by row."""
    p = ProgramBuilder("rgms_heterogeneous")
    relations, m, n, rows, nnz = p.sizes("relations", "m", "n", "rows", "nnz")
    R = p.dense_fixed("R", relations)
    I = p.sparse_variable("I", R, (m, rows), ("I_indptr", "I_indices"), index_dtype)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), index_dtype, sorted=False, unique=False)
    M = p.dense_fixed("M", m)
    N = p.dense_fixed("N", n)
    FI = p.dense_fixed("FI", in_features)
    FO = p.dense_fixed("FO", out_features)
    A = p.buffer("A", (R, I, J), dtype)
    X = p.buffer("X", (N, FI), dtype)
    W = p.buffer("W", (R, FI, FO), dtype)
    Y = p.buffer("Y", (M, FO), dtype)
    with p.iterate("zero", (M, FO), "SS", ("row", "f")) as (row, f):
        Y[row, f] = 0.0
    with p.iterate("rgms", (R, I, J, FI, FO), "RSRRS") as (r, i, j, fi, fo):
        Y[i, fo] = Y[i, fo] + A[r, i, j] * X[j, fi] * W[r, fi, fo]
    return p.finish()
