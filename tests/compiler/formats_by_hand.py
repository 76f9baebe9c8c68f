"""What the rules for ELL and for blocks make of `csr_spmm`, and the copy to blocks, written out by hand."""

from __future__ import annotations

from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import differ
from gnn_sparse_backend.compiler.language.program import Program


def ell_spmm(features: int, width: int, dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """A in ELL: `width` slots per row, unused ones with coordinate -1."""
    p = ProgramBuilder("ell_spmm")
    m, n = p.sizes("m", "n")
    I = p.dense_fixed("I", m)
    J = p.sparse_fixed("J", I, (n, width), "J_indices", index_dtype, padded=True)
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


def bsr_spmm(features: int, block: int, dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """A in BSR with square blocks; a mask tells the non-zeros of a block from its padding."""
    p = ProgramBuilder("bsr_spmm")
    mb, nb, nnzb, m, n = p.sizes("mb", "nb", "nnzb", "m", "n")
    IO = p.dense_fixed("IO", mb)
    JO = p.sparse_variable("JO", IO, (nb, nnzb), ("JO_indptr", "JO_indices"), index_dtype)
    II = p.dense_fixed("II", block)
    JI = p.dense_fixed("JI", block)
    M = p.dense_fixed("M", m)
    N = p.dense_fixed("N", n)
    K = p.dense_fixed("K", features)
    A = p.buffer("A", (IO, JO, II, JI), dtype)
    Mask = p.buffer("Mask", (IO, JO, II, JI), "uint8")
    B = p.buffer("B", (N, K), dtype)
    C = p.buffer("C", (M, K), dtype)
    with p.iterate("zero", (M, K), "SS", ("row", "f")) as (row, f):
        C[row, f] = 0.0
    with p.iterate("spmm", (IO, JO, II, JI, K), "SRSRS") as (io, jo, ii, ji, k):
        p.where(differ(Mask[io, jo, ii, ji], 0))
        i = io * block + ii
        C[i, k] = C[i, k] + A[io, jo, ii, ji] * B[jo * block + ji, k]
    return p.finish()


def csr_to_bsr(block: int, dtype: str = "float32", index_dtype: str = "int32") -> Program:
    """Fill the blocks of a BSR matrix from CSR; what is not stored is zero."""
    p = ProgramBuilder("csr_to_bsr")
    m, n, nnz, mb, nb, nnzb = p.sizes("m", "n", "nnz", "mb", "nb", "nnzb")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), index_dtype)
    IO = p.dense_fixed("IO", mb)
    JO = p.sparse_variable("JO", IO, (nb, nnzb), ("JO_indptr", "JO_indices"), index_dtype)
    II = p.dense_fixed("II", block)
    JI = p.dense_fixed("JI", block)
    A = p.buffer("A", (I, J), dtype)
    B = p.buffer("B", (IO, JO, II, JI), dtype)
    with p.iterate("copy", (IO, JO, II, JI), "SSSS") as (io, jo, ii, ji):
        B[io, jo, ii, ji] = A[io * block + ii, jo * block + ji]
    return p.finish()
