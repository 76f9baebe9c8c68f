"""Reductions and element-wise operators over sparse and ragged structure."""

from __future__ import annotations

from ..language.builder import ProgramBuilder
from ..language.expr import exp, maximum
from ..language.program import Program


def segment_sum(features: int, dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """Y[i, k] = sum of the rows of segment i of X."""
    p = ProgramBuilder("segment_sum")
    m, n, total = p.sizes("m", "n", "total")
    I = p.dense_fixed("I", m)
    J = p.dense_variable("J", I, (n, total), "J_indptr", index_dtype)
    K = p.dense_fixed("K", features)
    X = p.buffer("X", (I, J, K), dtype)
    Y = p.buffer("Y", (I, K), dtype)
    with p.iterate("segments", (I, J, K), "SRS") as (i, j, k):
        with p.init():
            Y[i, k] = 0.0
        Y[i, k] = Y[i, k] + X[i, j, k]
    return p.finish()


def csr_row_sum(dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """Y[i] = sum over j of A[i, j]."""
    p = ProgramBuilder("csr_row_sum")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), index_dtype)
    A = p.buffer("A", (I, J), dtype)
    Y = p.buffer("Y", (I,), dtype)
    with p.iterate("rows", (I, J), "SR") as (i, j):
        with p.init():
            Y[i] = 0.0
        Y[i] = Y[i] + A[i, j]
    return p.finish()


def csr_scale(dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """B[i, j] = A[i, j] * R[i] * C[j]: element-wise on a shared structure, as in symmetric normalisation."""
    p = ProgramBuilder("csr_scale")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), index_dtype)
    N = p.dense_fixed("N", n)
    A = p.buffer("A", (I, J), dtype)
    R = p.buffer("R", (I,), dtype)
    C = p.buffer("C", (N,), dtype)
    B = p.buffer("B", (I, J), dtype)
    with p.iterate("scale", (I, J), "SS") as (i, j):
        B[i, j] = A[i, j] * R[i] * C[j]
    return p.finish()


def square_sum(dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """Y[i] = sum over j and k of A[i, j, k] ** 2 with two nested sparse axes (CSF)."""
    p = ProgramBuilder("square_sum")
    m, n, depth, nnz_j, nnz_k = p.sizes("m", "n", "depth", "nnz_j", "nnz_k")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz_j), ("J_indptr", "J_indices"), index_dtype)
    K = p.sparse_variable("K", J, (depth, nnz_k), ("K_indptr", "K_indices"), index_dtype)
    A = p.buffer("A", (I, J, K), dtype)
    Y = p.buffer("Y", (I,), dtype)
    with p.iterate("squares", (I, J, K), "SRR") as (i, j, k):
        with p.init():
            Y[i] = 0.0
        Y[i] = Y[i] + A[i, j, k] * A[i, j, k]
    return p.finish()


def ragged_sum_4d(dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """Y[i, j, k] = sum over l of X[i, j, k, l] on four nested ragged axes; (I, J, K) may be fused into one loop."""
    p = ProgramBuilder("ragged_sum_4d")
    m, longest, nnz_j, nnz_k, nnz_l = p.sizes("m", "longest", "nnz_j", "nnz_k", "nnz_l")
    I = p.dense_fixed("I", m)
    J = p.dense_variable("J", I, (longest, nnz_j), "J_indptr", index_dtype)
    K = p.dense_variable("K", J, (longest, nnz_k), "K_indptr", index_dtype)
    L = p.dense_variable("L", K, (longest, nnz_l), "L_indptr", index_dtype)
    X = p.buffer("X", (I, J, K, L), dtype)
    Y = p.buffer("Y", (I, J, K), dtype)
    with p.iterate("sums", (I, J, K, L), "SSSR") as (i, j, k, l):
        with p.init():
            Y[i, j, k] = 0.0
        Y[i, j, k] = Y[i, j, k] + X[i, j, k, l]
    return p.finish()


def sparse_softmax(dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """P[i, j] = exp(A[i, j] - max of row i) / sum over the row, at the non-zeros of A."""
    p = ProgramBuilder("sparse_softmax")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), index_dtype)
    A = p.buffer("A", (I, J), dtype)
    P = p.buffer("P", (I, J), dtype)
    with p.iterate("rows", (I,), "S") as (i,):
        Max = p.local("Max", (), dtype)
        Sum = p.local("Sum", (), dtype)
        with p.iterate("max", (J,), "R", ("a",)) as (a,):
            with p.init():
                Max[()] = float("-inf")
            Max[()] = maximum(Max[()], A[i, a])
        with p.iterate("sum", (J,), "R", ("b",)) as (b,):
            with p.init():
                Sum[()] = 0.0
            Sum[()] = Sum[()] + exp(A[i, b] - Max[()])
        with p.iterate("out", (J,), "S", ("c",)) as (c,):
            P[i, c] = exp(A[i, c] - Max[()]) / Sum[()]
    return p.finish()
