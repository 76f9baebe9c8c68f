"""SpMM decomposed into the formats of the package, compiled, against SciPy: index arrays inferred by `formats`."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gnn_sparse_backend.compiler.compile import compile_program
from gnn_sparse_backend.compiler.language.axes import Size, dense_fixed, sparse_fixed, sparse_variable
from gnn_sparse_backend.compiler.language.builder import ProgramBuilder
from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.compiler.library.products import csr_spmm
from gnn_sparse_backend.compiler.schedules.cpu import cpu_schedule
from gnn_sparse_backend.compiler.transforms import (
    FormatRewriteRule,
    decompose_format,
    group_axis,
    remove_copies,
    split_copies,
)
from gnn_sparse_backend.compiler.transforms.block_rules import bsr_rule
from gnn_sparse_backend.compiler.transforms.format_rules import ell_rule, hyb_bucket_rule
from gnn_sparse_backend.formats import BsrFormat, EllFormat, HybFormat

WIDTH = 3


def matrix(seed, m, n, density=0.3, long_row=False, duplicates=False):
    """indptr, indices, values; some rows are empty."""
    rng = np.random.default_rng(seed)
    dense = (rng.random((m, n)) < density) & (rng.random((m, 1)) < 0.7)
    if long_row:
        dense[m // 2] = True
    rows, columns = np.nonzero(dense)
    if duplicates:
        again = rng.integers(0, len(rows), len(rows))
        rows, columns = np.concatenate([rows, rows[again]]), np.concatenate([columns, columns[again]])
        order = np.argsort(rows, kind="stable")
        rows, columns = rows[order], columns[order]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=m))])
    return indptr, columns, rng.integers(-8, 9, len(rows)) / 4


def expected(indptr, indices, values, shape, b):
    """float64, one product for each non-zero: an infinity reaches only the rows that see it."""
    rows = np.repeat(np.arange(shape[0]), np.diff(indptr))
    out = np.zeros((shape[0], b.shape[1]))
    with np.errstate(invalid="ignore"):
        np.add.at(out, rows, values[:, None] * b[indices].astype(np.float64))
    return out


def dense_operand(seed, n, special):
    b = np.random.default_rng(seed).integers(-8, 9, (n, WIDTH)) / 4
    if special:
        b[n // 2, 0], b[n - 1, 1], b[0, 2] = np.inf, np.nan, -np.inf
    return b.astype(np.float32)


def arrays(indptr, indices, index_dtype):
    return torch.from_numpy(indptr.astype(index_dtype)), torch.from_numpy(indices.astype(index_dtype))


@functools.cache
def kernel_of(program):
    return compile_program(program, cpu_schedule())


def run(program, arguments):
    """Run the compiled program; gives the arguments, with what it wrote."""
    typed = {}
    dtypes = {a: axis.index_dtype for axis in program.axes for a in (axis.indptr, axis.indices) if a}
    dtypes |= {b.name: b.dtype for b in program.parameters}
    for name in program.parameter_names:
        value = arguments[name]
        typed[name] = value if isinstance(value, int) else np.asarray(value).astype(dtypes[name])
    kernel_of(program)(*typed.values())
    return typed


def check(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, equal_nan=True)


def poison(*shape):
    return np.full(shape, np.nan, np.float32)


STRUCTURES = {
    "square": dict(seed=1, m=12, n=12),
    "odd": dict(seed=2, m=7, n=13),
    "tall": dict(seed=3, m=21, n=5),
    "one": dict(seed=4, m=1, n=1, density=1),
    "empty": dict(seed=5, m=6, n=4, density=0),
    "long_row": dict(seed=6, m=9, n=40, density=0.05, long_row=True),
}


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_bsr(name, special, index_dtype):
    indptr, indices, values = matrix(**STRUCTURES[name])
    shape = (STRUCTURES[name]["m"], STRUCTURES[name]["n"])
    b = dense_operand(9, shape[1], special)
    form = BsrFormat.from_csr(*arrays(indptr, indices, index_dtype), shape, 2)
    program = csr_spmm(WIDTH, index_dtype=index_dtype)
    program = decompose_format(program, [bsr_rule(program, 2, index_dtype=index_dtype)])
    arguments = {
        "m": shape[0],
        "n": shape[1],
        "nnz": len(indices),
        "mb_bsr": len(form.indptr) - 1,
        "nb_bsr": -(-shape[1] // 2),
        "nnzb_bsr": form.num_blocks,
        "J_indptr": indptr,
        "J_indices": indices,
        "indptr_bsr": form.indptr,
        "indices_bsr": form.indices,
        "A": values,
        "B": b,
        "C": poison(shape[0], WIDTH),
        "A_bsr": poison(form.num_blocks, 2, 2),
        "mask_bsr": np.full((form.num_blocks, 2, 2), 7),
    }
    first, second = split_copies(program)
    copied = run(first, arguments)
    # what the copies find is what the format infers
    check(copied["A_bsr"], form.pad_values(torch.from_numpy(values)).numpy())
    np.testing.assert_array_equal(copied["mask_bsr"], form.mask.numpy())
    assert not {"A", "J_indptr", "J_indices", "nnz"} & set(second.parameter_names)
    want = expected(indptr, indices, values, shape, b)
    check(run(second, arguments | {"A_bsr": copied["A_bsr"], "mask_bsr": copied["mask_bsr"]})["C"], want)
    check(run(program, arguments)["C"], want)


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_ell(name, special, index_dtype):
    indptr, indices, values = matrix(**STRUCTURES[name])
    shape = (STRUCTURES[name]["m"], STRUCTURES[name]["n"])
    b = dense_operand(9, shape[1], special)
    width = max(1, int(np.diff(indptr).max()))
    form = EllFormat.from_csr(*arrays(indptr, indices, index_dtype), shape, width)
    program = csr_spmm(WIDTH, index_dtype=index_dtype)
    program = decompose_format(program, [ell_rule(program, width, index_dtype=index_dtype)])
    arguments = {
        "m": shape[0],
        "n": shape[1],
        "nnz": len(indices),
        "m_ell": shape[0],
        "J_indptr": indptr,
        "J_indices": indices,
        "indices_ell": form.indices.reshape(-1),
        "A": values,
        "B": b,
        "C": poison(shape[0], WIDTH),
        "A_ell": poison(form.num_slots),
    }
    first, second = split_copies(program)
    copied = run(first, arguments)["A_ell"]
    # padded slots are left alone, and never read
    real = form.indices.reshape(-1).numpy() >= 0
    check(copied[real], form.pad_values(torch.from_numpy(values)).reshape(-1).numpy()[real])
    assert np.isnan(copied[~real]).all()
    want = expected(indptr, indices, values, shape, b)
    check(run(second, arguments | {"A_ell": copied})["C"], want)
    check(run(program, arguments)["C"], want)


def hyb_program(exponent, partitions, index_dtype="int32", copies=False):
    program = group_axis(csr_spmm(WIDTH, index_dtype=index_dtype), "I", "T", index_dtype)
    rules = [
        hyb_bucket_rule(program, 2**e, name=f"p{c}w{2**e}", index_dtype=index_dtype)
        for c in range(partitions)
        for e in range(exponent + 1)
    ]
    return decompose_format(program, rules, copies=copies)


def hyb_arguments(form, shape, values, b, tasks):
    """The arguments of the hyb kernel: rows are cut into tasks, and the rows of every bucket by the same cuts."""
    cuts = np.linspace(0, shape[0], tasks + 1).astype(np.int64)
    found = {"m": shape[0], "n": shape[1], "num_T": tasks, "T_ptr": cuts, "B": b, "C": poison(shape[0], WIDTH)}
    for bucket, padded in zip(form.buckets, form.pad_values(torch.from_numpy(values))):
        name = f"p{bucket.partition}w{bucket.width}"
        rows = bucket.row_indices.numpy()
        ptr = np.searchsorted(rows, cuts)
        owner = np.repeat(np.arange(tasks), np.diff(ptr))
        found |= {
            f"count_{name}": len(rows),
            f"ptr_{name}": ptr,
            f"listed_{name}": rows - cuts[owner],
            f"indices_{name}": bucket.indices.reshape(-1),
            f"A_{name}": padded.reshape(-1),
        }
    return found


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("partitions, exponent", [(1, 0), (1, 2), (3, 2)])
@pytest.mark.parametrize("name", STRUCTURES)
def test_hyb(name, partitions, exponent, tasks):
    indptr, indices, values = matrix(**STRUCTURES[name])
    shape = (STRUCTURES[name]["m"], STRUCTURES[name]["n"])
    form = HybFormat.from_csr(*arrays(indptr, indices, "int32"), shape, partitions, exponent, keep_empty=True)
    assert len(form.buckets) == partitions * (exponent + 1)
    if name == "long_row":
        assert not form.disjoint  # the row is split
    program = hyb_program(exponent, partitions)
    for special in (False, True):
        b = dense_operand(9, shape[1], special)
        want = expected(indptr, indices, values, shape, b)
        check(run(program, hyb_arguments(form, shape, values, b, tasks))["C"], want)


def test_hyb_with_repeated_edges_and_int64():
    """Copies would lose them; the values come from the format's value_position."""
    indptr, indices, values = matrix(seed=8, m=11, n=9, duplicates=True)
    form = HybFormat.from_csr(*arrays(indptr, indices, "int64"), (11, 9), 2, 2, keep_empty=True)
    b = dense_operand(9, 9, True)
    got = run(hyb_program(2, 2, "int64"), hyb_arguments(form, (11, 9), values, b, 2))
    check(got["C"], expected(indptr, indices, values, (11, 9), b))


def test_hyb_copies_find_the_values_that_the_format_lays_out():
    indptr, indices, values = matrix(seed=3, m=14, n=10)
    form = HybFormat.from_csr(*arrays(indptr, indices, "int32"), (14, 10), 1, 3, keep_empty=True)
    program = hyb_program(3, 1, copies=True)
    arguments = hyb_arguments(form, (14, 10), values, dense_operand(9, 10, False), 2)
    empty = {n: poison(*np.shape(v)) for n, v in arguments.items() if n.startswith("A_")}
    first, second = split_copies(program)
    assert second == hyb_program(3, 1) == remove_copies(program)
    csr = {"nnz": len(indices), "J_indptr": indptr, "J_indices": indices, "A": values}
    copied = run(first, arguments | csr | empty)
    for bucket in form.buckets:
        name, real = f"p0w{bucket.width}", bucket.indices.reshape(-1).numpy() >= 0
        check(copied[f"A_{name}"][real], np.float32(arguments[f"A_{name}"])[real])


def test_two_formats_share_the_non_zeros():
    """Dense 2 x 2 blocks go to BSR, what is left to ELL."""
    rng = np.random.default_rng(4)
    block = np.kron(rng.random((4, 4)) < 0.3, np.ones((2, 2)))
    block[5, :] = block[5, :] * (rng.random(8) < 0.5)  # blocks with holes, whose zeros must not meet an infinity
    left = (rng.random((8, 8)) < 0.15) & (np.kron(block.reshape(4, 2, 4, 2).any((1, 3)), np.ones((2, 2))) == 0)
    dense = np.where((block + left) > 0, rng.integers(1, 9, (8, 8)) / 4, 0)
    whole, in_blocks, in_rows = sp.csr_matrix(dense), sp.csr_matrix(dense * block), sp.csr_matrix(dense * left)
    bsr = BsrFormat.from_csr(*arrays(in_blocks.indptr, in_blocks.indices, "int32"), (8, 8), 2)
    ell = EllFormat.from_csr(*arrays(in_rows.indptr, in_rows.indices, "int32"), (8, 8), 8)
    assert bsr.nnz and ell.nnz and bsr.nnz + ell.nnz == whole.nnz
    program = csr_spmm(WIDTH)
    both = decompose_format(program, [bsr_rule(program, 2), ell_rule(program, 8)])
    b = dense_operand(9, 8, True)
    arguments = {
        "m": 8,
        "n": 8,
        "nnz": whole.nnz,
        "mb_bsr": 4,
        "nb_bsr": 4,
        "nnzb_bsr": bsr.num_blocks,
        "m_ell": 8,
        "J_indptr": whole.indptr,
        "J_indices": whole.indices,
        "indptr_bsr": bsr.indptr,
        "indices_bsr": bsr.indices,
        "indices_ell": ell.indices.reshape(-1),
        "A": whole.data,
        "B": b,
        "C": poison(8, WIDTH),
        "A_bsr": poison(bsr.num_blocks, 2, 2),
        "mask_bsr": np.zeros((bsr.num_blocks, 2, 2)),
        "A_ell": poison(64),
    }
    want = expected(whole.indptr, whole.indices, whole.data, (8, 8), b)
    check(run(both, arguments)["C"], want)
    check(interpret(both, {n: np.asarray(v) if not isinstance(v, int) else v for n, v in arguments.items()})["C"], want)


def bucket(program, width, tasks, T):
    """A bucket whose task axis is shared with the other buckets."""
    name = f"w{width}"
    count = Size(f"count_{name}")
    I = sparse_variable(
        f"I_{name}", T, (program.axis("I").length, count), (f"ptr_{name}", f"listed_{name}"), unique=False
    )
    J = sparse_fixed(f"J_{name}", I, (program.axis("J").length, width), f"indices_{name}", sorted=False, padded=True)
    return FormatRewriteRule(
        name,
        (tasks, count),
        (T, I, J),
        ("A",),
        ("I", "J"),
        (T.name, I.name, J.name),
        {"I": (T.name, I.name), "J": (J.name,)},
        lambda i, j: (0, i, j),
        lambda t, i, j: (i, j),
    )


def test_rules_may_share_an_axis_and_a_size():
    program, tasks = csr_spmm(WIDTH), Size("tasks")
    T = dense_fixed("T", tasks)
    shared = decompose_format(program, [bucket(program, 2**e, tasks, T) for e in range(3)], copies=False)
    assert [a.name for a in shared.axes].count("T") == 1 and shared.sizes.count(tasks) == 1
    indptr, indices, values = matrix(seed=2, m=10, n=9)
    form = HybFormat.from_csr(*arrays(indptr, indices, "int32"), (10, 9), 1, 2, keep_empty=True)
    b = dense_operand(9, 9, True)
    arguments = {"m": 10, "n": 9, "tasks": 2, "B": b, "C": poison(10, WIDTH)}
    for part, padded in zip(form.buckets, form.pad_values(torch.from_numpy(values))):
        name = f"w{part.width}"
        arguments |= {
            f"count_{name}": part.num_rows,
            f"ptr_{name}": np.searchsorted(part.row_indices.numpy(), [0, 5, 10]),
            f"listed_{name}": part.row_indices,
            f"indices_{name}": part.indices.reshape(-1),
            f"A_{name}": padded.reshape(-1),
        }
    check(run(shared, arguments)["C"], expected(indptr, indices, values, (10, 9), b))


def test_a_rule_may_use_sizes_of_the_program():
    program = csr_spmm(WIDTH)
    rule = ell_rule(program, 2)
    rows = replace(rule.axes[0], length=program.axis("I").length)
    columns = replace(rule.axes[1], parent=rows)
    done = decompose_format(program, [replace(rule, sizes=(program.sizes[0],), axes=(rows, columns))])
    assert done.sizes == program.sizes


def test_a_condition_goes_along():
    """Only columns below the row: the condition is rewritten into the new coordinates, beside the mask."""
    program = csr_spmm(WIDTH)
    (it,) = program.iterations
    i, j, _ = it.variables
    program = replace(program, iterations=(replace(it, where=j < i),))
    dense = np.random.default_rng(1).integers(0, 3, (6, 6)).astype(float)
    whole, b = sp.csr_matrix(dense), dense_operand(9, 6, False)
    common = {
        "m": 6,
        "n": 6,
        "nnz": whole.nnz,
        "J_indptr": whole.indptr,
        "J_indices": whole.indices,
        "A": whole.data,
        "B": b,
        "C": poison(6, WIDTH),
    }
    form = BsrFormat.from_csr(*arrays(whole.indptr, whole.indices, "int32"), (6, 6), 2)
    blocks = {
        "mb_bsr": 3,
        "nb_bsr": 3,
        "nnzb_bsr": form.num_blocks,
        "indptr_bsr": form.indptr,
        "indices_bsr": form.indices,
        "A_bsr": poison(form.num_blocks, 2, 2),
        "mask_bsr": np.zeros((form.num_blocks, 2, 2)),
    }
    rows = EllFormat.from_csr(*arrays(whole.indptr, whole.indices, "int32"), (6, 6), 6)
    slots = {"m_ell": 6, "indices_ell": rows.indices.reshape(-1), "A_ell": poison(36)}
    want = np.tril(dense, -1) @ b.astype(np.float64)
    check(run(decompose_format(program, [bsr_rule(program, 2)]), common | blocks)["C"], want)
    check(run(decompose_format(program, [ell_rule(program, 6)]), common | slots)["C"], want)


def test_copies_are_those_at_the_beginning():
    """An iteration that only has the name of a copy stays where it is."""
    p = ProgramBuilder("twice")
    m, n, nnz = p.sizes("m", "n", "nnz")
    I = p.dense_fixed("I", m)
    J = p.sparse_variable("J", I, (n, nnz), ("J_indptr", "J_indices"))
    A, Y, Z = p.buffer("A", (I, J), "float32"), p.buffer("Y", (I,), "float32"), p.buffer("Z", (I,), "float32")
    with p.iterate("sum", (I, J), "SR") as (i, j):
        with p.init():
            Y[i] = 0
        Y[i] = Y[i] + A[i, j]
    with p.iterate("copy_Z", (I,), "S", ("r",)) as (r,):
        Z[r] = Y[r]
    program = p.finish()
    assert split_copies(program) == (None, program)
    first, second = split_copies(decompose_format(program, [ell_rule(program, 2)]))
    assert [it.name for it in first.iterations] == ["copy_A_ell"]
    assert [it.name for it in second.iterations] == ["sum_init", "sum_ell", "copy_Z"]
