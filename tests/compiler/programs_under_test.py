"""Every program of the library, with sizes to draw and what to put into arrays that have a meaning of their own."""

from __future__ import annotations

import numpy as np

from gnn_sparse_backend.compiler.library import products, reductions, relational
from gnn_sparse_backend.compiler.transforms import (
    block_rules,
    decompose_format,
    group_axis,
    remove_copies,
    sparse_fuse,
    sparse_reorder,
)
from gnn_sparse_backend.compiler.transforms import format_rules as formats
from tests.compiler import formats_by_hand, grouped_programs, merged_programs, message_programs
from tests.compiler.program_case import Case
from tests.compiler.structures import values


def _mn(rng, **extra):
    return {"m": int(rng.integers(1, 7)), "n": int(rng.integers(1, 7)), **extra}


def _bsr_sizes(rng):
    mb, nb = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    # the matrix need not fill its last block
    return {"mb": mb, "nb": nb, "m": 2 * mb - int(rng.integers(0, 2)), "n": 2 * nb - int(rng.integers(0, 2))}


def _bsr_mask(found, rng, suffix=""):
    """Blocks may reach over the edge of the matrix: nothing is stored there."""
    mask = found["Mask"]
    rows = np.repeat(np.arange(found["mb"]), np.diff(found["JO_indptr"]))
    for at, (row, column) in enumerate(zip(rows, found["JO_indices"])):
        for ii in range(2):
            for ji in range(2):
                if 2 * row + ii >= found["m"] or 2 * column + ji >= found["n"]:
                    mask[at, ii, ji] = 0
    # what is masked must not matter, whatever it holds
    found["A"] = np.where(mask != 0, found["A"], np.nan)


def _dia(found, rng):
    offsets = np.arange(1 - found["m"], found["n"])
    found["Offsets"][:] = rng.permutation(offsets)[: len(found["Offsets"])]


def _types(found, rng):
    found["Type"] = rng.integers(0, found["relations"], found["Type"].shape).astype(found["Type"].dtype)


def _decomposed(index_dtype):
    program = products.csr_spmm(3, index_dtype=index_dtype)
    rules = [
        block_rules.bsr_rule(program, 2, index_dtype=index_dtype),
        formats.ell_rule(program, 2, index_dtype=index_dtype),
    ]
    return decompose_format(program, rules)


def _hyb(index_dtype):
    program = group_axis(products.csr_spmm(3, index_dtype=index_dtype), "I", "T", index_dtype)
    rules = [formats.hyb_bucket_rule(program, 2**k, name=f"w{2**k}", index_dtype=index_dtype) for k in range(3)]
    return remove_copies(decompose_format(program, rules))


def _rgms_hyb(index_dtype):
    """3-D hyb: the rows of each relation in buckets (SparseTIR, section 4.4)."""
    program = relational.rgms_heterogeneous(3, 2, index_dtype=index_dtype)
    rules = [
        formats.hyb_bucket_rule(program, 2**k, name=f"w{2**k}", tasks="R", index_dtype=index_dtype) for k in range(3)
    ]
    return decompose_format(program, rules, copies=False)


def _decomposed_sizes(rng):
    mb, nb = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    m = 2 * mb
    return {"m": m, "n": 2 * nb, "mb_bsr": mb, "nb_bsr": nb, "m_ell": m}


def _hyb_sizes(rng):
    return {"num_T": int(rng.integers(1, 4)), "n": int(rng.integers(1, 7))}


def _hyb_rows(found, rng):
    """Bucket rows lie within their task, sorted, possibly repeated; coordinates of absent slots stay -1."""
    rows = np.diff(found["T_ptr"])
    for k in range(3):
        name = f"w{2**k}"
        counts = np.where(rows > 0, rng.integers(0, 4, len(rows)), 0)
        dtype = found[f"listed_{name}"].dtype
        found[f"ptr_{name}"] = np.concatenate([[0], np.cumsum(counts)]).astype(dtype)
        inside = [np.sort(rng.integers(0, r, c)) for r, c in zip(rows, counts) if c]
        found[f"listed_{name}"] = (np.concatenate(inside) if inside else np.zeros(0)).astype(dtype)
        total = int(counts.sum())
        found[f"count_{name}"] = total
        found[f"indices_{name}"] = rng.integers(-1, found["n"], total * 2**k).astype(dtype)
        found[f"A_{name}"] = values(rng, (total * 2**k,), "float32")


CASES: dict[str, Case] = {
    "csr_spmm": Case(lambda t: products.csr_spmm(3, index_dtype=t), _mn, ("C",)),
    "ell_spmm": Case(lambda t: formats_by_hand.ell_spmm(3, 4, index_dtype=t), _mn, ("C",)),
    "bsr_spmm": Case(lambda t: formats_by_hand.bsr_spmm(3, 2, index_dtype=t), _bsr_sizes, ("C",), _bsr_mask),
    "dia_spmm": Case(
        lambda t: products.dia_spmm(3, index_dtype=t),
        lambda rng: _mn(rng, diagonals=int(rng.integers(0, 2))),
        ("C",),
        _dia,
    ),
    "batched_spmm": Case(lambda t: products.batched_spmm(3, index_dtype=t), lambda rng: _mn(rng, batch=2), ("C",)),
    "csr_sddmm": Case(lambda t: products.csr_sddmm(5, index_dtype=t), _mn, ("O",)),
    "fused_sddmm": Case(lambda t: sparse_fuse(products.csr_sddmm(5, index_dtype=t), "sddmm", ("I", "J")), _mn, ("O",)),
    "reordered_spmm": Case(
        lambda t: sparse_reorder(products.csr_spmm(3, index_dtype=t), "spmm", ("K", "I", "J")), _mn, ("C",)
    ),
    "segment_sum": Case(lambda t: reductions.segment_sum(3, index_dtype=t), _mn, ("Y",)),
    "csr_row_sum": Case(lambda t: reductions.csr_row_sum(index_dtype=t), _mn, ("Y",)),
    "csr_scale": Case(lambda t: reductions.csr_scale(index_dtype=t), _mn, ("B",)),
    "square_sum": Case(lambda t: reductions.square_sum(index_dtype=t), lambda rng: _mn(rng, depth=5), ("Y",)),
    "ragged_sum_4d": Case(
        lambda t: reductions.ragged_sum_4d(index_dtype=t), lambda rng: {"m": 3, "longest": 3}, ("Y",), most=3
    ),
    "fused_ragged_sum_4d": Case(
        lambda t: sparse_fuse(reductions.ragged_sum_4d(index_dtype=t), "sums", ("I", "J", "K")),
        lambda rng: {"m": 3, "longest": 3},
        ("Y",),
        most=3,
    ),
    "sparse_softmax": Case(lambda t: reductions.sparse_softmax(index_dtype=t), _mn, ("P",)),
    "hypergraph_convolution": Case(
        lambda t: relational.hypergraph_convolution(3, index_dtype=t),
        lambda rng: {"vertices": 5, "edges": 4},
        ("Z",),
        lambda found, rng: _incidence(found, rng),
    ),
    "rgms_homogeneous": Case(
        lambda t: relational.rgms_homogeneous(3, 2, index_dtype=t), lambda rng: _mn(rng, relations=3), ("Y",), _types
    ),
    "rgms_heterogeneous": Case(
        lambda t: relational.rgms_heterogeneous(3, 2, index_dtype=t), lambda rng: _mn(rng, relations=3), ("Y",)
    ),
    "csr_to_bsr": Case(lambda t: formats_by_hand.csr_to_bsr(2, index_dtype=t), _bsr_sizes, ("B",)),
    "spmm_in_bsr_and_ell": Case(_decomposed, _decomposed_sizes, ("C", "A_bsr", "A_ell")),
    "rgms_in_hyb": Case(_rgms_hyb, lambda rng: _mn(rng, relations=3), ("Y",)),
    "spmm_in_hyb": Case(_hyb, _hyb_sizes, ("C",), _hyb_rows),
}


def _incidence(found, rng):
    """Both directions of one hypergraph have as many incidences."""
    dense = rng.random((found["edges"], found["vertices"])) < 0.4
    dtype = found["U_indptr"].dtype
    for axis, matrix in (("U", dense), ("W", dense.T)):
        found[f"{axis}_indptr"] = np.concatenate([[0], np.cumsum(matrix.sum(1))]).astype(dtype)
        found[f"{axis}_indices"] = np.nonzero(matrix)[1].astype(dtype)
    found["nnz"] = int(dense.sum())


CASES |= message_programs.CASES | grouped_programs.CASES | merged_programs.CASES
