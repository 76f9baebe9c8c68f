"""Stage II and stage III of small programs, as texts."""

import pytest

from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.library.products import csr_sddmm, csr_spmm
from gnn_sparse_backend.compiler.lowering import flatten, lower
from gnn_sparse_backend.compiler.transforms import sparse_fuse
from tests.compiler.formats_by_hand import bsr_spmm, csr_to_bsr, ell_spmm
from tests.compiler.merged_programs import CASES as MERGED
from tests.compiler.tvm_text import tvm_text


def unsorted_lookup():
    """Y[i] = A[i, columns[i]]: coordinates are not sorted, so they are looked through one by one."""
    p = ProgramBuilder("unsorted_lookup")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"), sorted=False)
    A = p.buffer("A", (I, J), "float32")
    Column = p.buffer("Column", (I,), "int32")
    Y = p.buffer("Y", (I,), "float32")
    with p.iterate("pick", (I,), "S") as (i,):
        Y[i] = A[i, Column[i]]
    return p.finish()


STAGE_TWO = {
    "csr_spmm": lambda: csr_spmm(16),
    "csr_spmm_int64": lambda: csr_spmm(16, index_dtype="int64"),
    "ell_spmm": lambda: ell_spmm(16, 4),
    "fused_sddmm": lambda: sparse_fuse(csr_sddmm(16), "sddmm", ("I", "J")),
    "csr_to_bsr": lambda: csr_to_bsr(2),
    "unsorted_lookup": unsorted_lookup,
    "merged_union": lambda: MERGED["merged_union"].make("int32"),
    "merged_inner_product": lambda: MERGED["merged_inner_product"].make("int64"),
}


@pytest.mark.parametrize("name", STAGE_TWO)
def test_stage_two(name, file_regression):
    file_regression.check(tvm_text(lower(STAGE_TWO[name]()).function), basename=f"stage2_{name}")


@pytest.mark.parametrize("name, make", [("csr_spmm", lambda: csr_spmm(16)), ("bsr_spmm", lambda: bsr_spmm(16, 2))])
def test_stage_three(name, make, file_regression):
    file_regression.check(tvm_text(flatten(lower(make()))), basename=f"stage3_{name}")


def test_int64_indices_are_not_cast():
    assert "Cast" not in tvm_text(lower(csr_spmm(16, index_dtype="int64")).function)


def test_every_index_is_computed_in_int64():
    for make in STAGE_TWO.values():
        text = tvm_text(lower(make()).function)
        assert "T.int32(" not in text and "T.int32," not in text, text
