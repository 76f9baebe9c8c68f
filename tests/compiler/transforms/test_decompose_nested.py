"""A mean over rows, with accumulators and a division at the end, decomposed into formats: compiled, against float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gnn_sparse_backend.compiler.language.axes import StageIError
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.expr import cast, maximum
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.transforms import decompose_format, split_parts
from gnn_sparse_backend.compiler.transforms.block_rules import bsr_rule, dbsr_rule, dia_rule, sr_bcrs_rule
from gnn_sparse_backend.compiler.transforms.format_rules import csr_rule, ell_rule, hyb_bucket_rule
from gnn_sparse_backend.formats import BsrFormat, DbsrFormat, DiaFormat, EllFormat, HybFormat, SrBcrsFormat
from gnn_sparse_backend.ops.attention.programs.attention import AttentionSpec, Attribute, attention
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from gnn_sparse_backend.structures.pieces import column_partitions, positions_in_partitions
from tests.compiler.transforms.test_decompose_formats import (
    WIDTH,
    arrays,
    check,
    dense_operand,
    expected,
    matrix,
    poison,
    run,
)
from tests.compiler.transforms.tiny_programs import local_sum
from tests.compiler.transforms.tiny_programs import matrix as matrix_of

M, N = 13, 9


def mean(at_end=lambda total, degree: total / degree, stored="float32", **marks):
    """C[i] = (sum of A[i, j] * B[j]) / D[i], in a local buffer of float32."""
    p = ProgramBuilder("mean")
    I, J = matrix_of(p, **marks)
    K = p.dense_fixed("K", WIDTH)
    A, B = p.buffer("A", (I, J), "float32"), p.buffer("B", (p.dense_fixed("N", J.length), K), "float32")
    D, C = p.buffer("D", (I,), "int32"), p.buffer("C", (I, K), stored)
    with p.iterate("rows", (I,), "S") as (i,):
        S = p.local("S", (K,), "float32")
        with p.iterate("sum", (J, K), "RS") as (j, k):
            with p.init():
                S[k] = 0
            S[k] = S[k] + A[i, j] * B[j, k]
        with p.iterate("out", (K,), "S", ("f",)) as (f,):
            C[i, f] = cast(stored, at_end(S[f], maximum(cast("float32", D[i]), 1.0)))
    return p.finish()


def structure(longest: int = N):
    indptr, indices, values = matrix(seed=3, m=M, n=N, density=0.4)
    keep = np.concatenate([np.arange(length) < longest for length in np.diff(indptr)])
    lengths = np.minimum(np.diff(indptr), longest)
    return np.concatenate([[0], np.cumsum(lengths)]), indices[keep], values[keep]


def common(indptr, b):
    return {"m": M, "n": N, "B": b, "D": np.diff(indptr), "C": poison(M, WIDTH)}


def in_buckets(program, csr, values):
    form = HybFormat.from_csr(*csr, (M, N), 1, 3, keep_empty=True)
    assert form.disjoint
    rules = [hyb_bucket_rule(program, 2**e, name=f"w{2**e}", tasks=None) for e in range(4)]
    found = {}
    for bucket, padded in zip(form.buckets, form.pad_values(values)):
        name = f"w{bucket.width}"
        found |= {f"count_{name}": bucket.num_rows, f"Rows_{name}": bucket.row_indices}
        found |= {f"indices_{name}": bucket.indices.reshape(-1), f"A_{name}": padded.reshape(-1)}
    return rules, found


def in_slots(program, csr, values):
    form = EllFormat.from_csr(*csr, (M, N), 8)
    found = {"m_ell": M, "indices_ell": form.indices.reshape(-1), "A_ell": form.pad_values(values).reshape(-1)}
    return [ell_rule(program, 8)], found


def in_blocks(program, csr, values):
    form = BsrFormat.from_csr(*csr, (M, N), (2, 4))
    found = {"mb_bsr": len(form.indptr) - 1, "nb_bsr": 3, "nnzb_bsr": form.num_blocks, "indptr_bsr": form.indptr}
    found |= {"indices_bsr": form.indices, "A_bsr": form.pad_values(values), "mask_bsr": form.mask}
    return [bsr_rule(program, (2, 4))], found


def in_listed_blocks(program, csr, values):
    form = SrBcrsFormat.from_csr(*csr, (M, N), (4, 2))
    found = {"tiles_sr_bcrs": len(form.indptr) - 1, "groups_sr_bcrs": form.num_groups, "indptr_sr_bcrs": form.indptr}
    found |= {"Columns_sr_bcrs": form.indices, "A_sr_bcrs": form.pad_values(values), "mask_sr_bcrs": form.mask}
    return [sr_bcrs_rule(program, (4, 2))], found


def in_stored_blocks(program, csr, values):
    form = DbsrFormat.from_csr(*csr, (M, N), (2, 4))
    found = {"stored_dbsr": len(form.rows), "nb_dbsr": 3, "nnzb_dbsr": form.num_blocks, "Rows_dbsr": form.rows}
    found |= {"indptr_dbsr": form.indptr, "indices_dbsr": form.indices}
    found |= {"A_dbsr": form.pad_values(values), "mask_dbsr": form.mask}
    return [dbsr_rule(program, (2, 4))], found


def in_diagonals(program, csr, values):
    form = DiaFormat.from_csr(*csr, (M, N))
    found = {"diagonals_dia": form.num_diagonals, "Offsets_dia": form.offsets}
    return [dia_rule(program)], found | {"A_dia": form.pad_values(values), "mask_dia": form.mask}


@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("into", [in_buckets, in_slots, in_blocks, in_listed_blocks, in_stored_blocks, in_diagonals])
def test_rows_that_no_other_part_has(into, special):
    """Blocks reach beyond the last row; rows without non-zeros are in no bucket, and are left alone."""
    indptr, indices, values = structure(8)
    program, b = mean(), dense_operand(9, N, special)
    rules, found = into(program, arrays(indptr, indices, "int32"), torch.from_numpy(values))
    done = decompose_format(program, rules, copies=False, disjoint=True)
    assert [it.name for it in done.iterations] == [f"rows_{rule.name}" for rule in rules]
    degrees = np.diff(indptr)
    want = expected(indptr, indices, values, (M, N), b) / np.maximum(degrees, 1)[:, None]
    if into is in_buckets:
        want[degrees == 0] = np.nan
    if into is in_stored_blocks:
        want[np.repeat(np.add.reduceat(degrees, range(0, M, 2)) == 0, 2)[:M]] = np.nan
    check(run(done, common(indptr, b) | found)["C"], want)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_passes_over_the_same_rows(parts):
    """Together in one program, and each by itself; the last one alone divides."""
    indptr, indices, values = structure()
    program, b = mean(), dense_operand(9, N, True)
    csr = arrays(indptr, indices, "int32")
    pieces, positions = column_partitions(*csr, (M, N), parts), positions_in_partitions(csr[1], (M, N), parts)
    rules = [csr_rule(program, name=f"p{part}") for part in range(parts)]
    done = decompose_format(program, rules, copies=False)
    assert [it.name for it in done.iterations] == [f"rows_p{part}" for part in range(parts)]
    given = common(indptr, b)
    for part, (piece, at) in enumerate(zip(pieces, positions)):
        own = {"nnz": piece.num_edges, "indptr": piece.indptr, "indices": piece.indices}
        given |= {f"{name}_p{part}": x for name, x in own.items()} | {f"A_p{part}": values[at]}
    want = expected(indptr, indices, values, (M, N), b) / np.maximum(np.diff(indptr), 1)[:, None]
    check(run(done, given)["C"], want)
    for number, part in enumerate(split_parts(done)):
        assert ("D" in part.parameter_names) == (number == parts - 1)
        given["C"] = run(part, given)["C"]
    check(given["C"], want)


def test_copies_find_the_values():
    indptr, indices, values = structure(8)
    program, b = mean(), dense_operand(9, N, False)
    rules, found = in_slots(program, arrays(indptr, indices, "int32"), torch.from_numpy(values))
    csr = {"nnz": len(indices), "ptr": indptr, "idx": indices, "A": values}
    done = decompose_format(program, rules, disjoint=True)
    got = interpret(done, common(indptr, b) | found | csr | {"A_ell": poison(M * 8)})["C"]
    check(got, expected(indptr, indices, values, (M, N), b) / np.maximum(np.diff(indptr), 1)[:, None])


def passes(program):
    return decompose_format(program, [csr_rule(program, name=name) for name in "ab"], copies=False)


def stored_twice():
    def extra(p, i, J, K, B, C, S):
        with p.iterate("again", (K,), "S", ("g",)) as (g,):
            C[i, g] = S[g] + 1

    return local_sum(extra=extra)


def never_stored():
    program = mean()
    (rows,) = program.iterations
    return replace(program, iterations=(replace(rows, body=rows.body[:1]),))


def softmax_of_rows():
    row, column = Operand("row", (4,), "float32"), Operand("column", (4,), "float32")
    score = Attribute(parse("mul(x0, x1)"), (row, column), (4,))
    return attention(AttentionSpec(score, (True,), Attribute(parse("x0"), (column,), (4,)), (1,)))


def positions():
    """Something is stored for each non-zero."""
    program = mean()
    (rows,) = program.iterations
    sums, out = rows.nested
    (store,) = out.stores
    inner = replace(sums, body=(*sums.body, replace(store, indices=(store.indices[0], sums.variables[1]))))
    return replace(program, iterations=(replace(rows, body=(inner, out)),))


def looked_up():
    """(a program with two buffers on the same non-zeros, a rule for one of them)."""
    p = ProgramBuilder("scale")
    I, J = matrix_of(p, unique=False)
    A, B, Y = p.buffer("A", (I, J), "float32"), p.buffer("B", (I, J), "float32"), p.buffer("Y", (I,), "float32")
    with p.iterate("scale", (I, J), "SR") as (i, j):
        Y[i] = Y[i] + A[i, j] * B[i, j]
    program = p.finish()
    return program, [ell_rule(program, 2, buffers=("A",))]


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: passes(stored_twice()), "'rows' does more with what it accumulates than to store each buffer once"),
        (lambda: passes(softmax_of_rows()), "'rows' does more with what it accumulates than to store each buffer once"),
        (lambda: passes(never_stored()), "'rows' does not store what it accumulates in 'S'"),
        (lambda: passes(mean(stored="float16")), "would round what it accumulates to float16 after each pass"),
        (
            lambda: decompose_format(mean(), [ell_rule(mean(), 2)], copies=False),
            r"iteration 'rows' does not visit the axes \('I', 'J'\) itself; pass disjoint=True where each row",
        ),
        (lambda: passes(positions()), "'rows' stores to 'C' before the last pass is over"),
        (
            lambda: decompose_format(*looked_up(), copies=False),
            "'scale' would look 'B' up by coordinates, which may repeat",
        ),
    ],
    ids=["twice", "softmax", "never", "rounded", "shared rows", "positions", "looked up"],
)
def test_refusals(make, words):
    with pytest.raises(StageIError, match=words):
        make()
