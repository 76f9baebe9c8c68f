"""Sparse-dense products in every format, as one writes them down. Parameters are named in the order of the kernel's."""

from __future__ import annotations

from ..language.builder import ProgramBuilder
from ..language.expr import both, differ, number
from ..language.program import Program


def csr_spmm(features: int, dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """C[i, k] = sum over j of A[i, j] * B[j, k] with A in CSR."""
    p = ProgramBuilder("csr_spmm")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), index_dtype)
    N = p.dense_fixed("N", n)
    K = p.dense_fixed("K", features)
    A = p.buffer("A", (I, J), dtype)
    B = p.buffer("B", (N, K), dtype)
    C = p.buffer("C", (I, K), dtype)
    with p.iterate("spmm", (I, J, K), "SRS") as (i, j, k):
        with p.init():
            C[i, k] = 0.0
        C[i, k] = C[i, k] + A[i, j] * B[j, k]
    return p.finish()


def dia_spmm(features: int, dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """A in DIA: diagonal d holds A[i, i + Offsets[d]] at row i, where the mask says so."""
    p = ProgramBuilder("dia_spmm")
    m, n, diagonals = p.sizes("m", "n", "diagonals")
    I = p.dense_fixed("I", m)
    D = p.dense_fixed("D", diagonals)
    N = p.dense_fixed("N", n)
    K = p.dense_fixed("K", features)
    Offsets = p.buffer("Offsets", (D,), index_dtype)
    A = p.buffer("A", (D, I), dtype)
    Mask = p.buffer("Mask", (D, I), "uint8")
    B = p.buffer("B", (N, K), dtype)
    C = p.buffer("C", (I, K), dtype)
    with p.iterate("spmm", (I, D, K), "SRS") as (i, d, k):
        with p.init():
            C[i, k] = 0.0
        column = i + Offsets[d]
        p.where(both(differ(Mask[d, i], 0), both(column >= 0, column < number(n))))
        C[i, k] = C[i, k] + A[d, i] * B[column, k]
    return p.finish()


def batched_spmm(features: int, dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """One structure, a batch of values: C[b, i, k] = sum over j of A[b, i, j] * B[b, j, k]."""
    p = ProgramBuilder("batched_spmm")
    batch, m, n, nnz = p.sizes("batch", "m", "n", "nnz")
    T = p.dense_fixed("T", batch)
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), index_dtype)
    N = p.dense_fixed("N", n)
    K = p.dense_fixed("K", features)
    A = p.buffer("A", (T, I, J), dtype)
    B = p.buffer("B", (T, N, K), dtype)
    C = p.buffer("C", (T, I, K), dtype)
    with p.iterate("spmm", (T, I, J, K), "SSRS") as (t, i, j, k):
        with p.init():
            C[t, i, k] = 0.0
        C[t, i, k] = C[t, i, k] + A[t, i, j] * B[t, j, k]
    return p.finish()


def csr_sddmm(features: int, dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """O[i, j] = A[i, j] * sum over k of U[i, k] * V[j, k] at the non-zeros of A."""
    p = ProgramBuilder("csr_sddmm")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), index_dtype)
    N = p.dense_fixed("N", n)
    K = p.dense_fixed("K", features)
    A = p.buffer("A", (I, J), dtype)
    U = p.buffer("U", (I, K), dtype)
    V = p.buffer("V", (N, K), dtype)
    O = p.buffer("O", (I, J), dtype)
    with p.iterate("sddmm", (I, J, K), "SSR") as (i, j, k):
        with p.init():
            O[i, j] = 0.0
        O[i, j] = O[i, j] + A[i, j] * U[i, k] * V[j, k]
    return p.finish()
