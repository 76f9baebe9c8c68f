"""Kernels that are kept, operators of arrays, levels as axes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.compiler import ProgramBuilder
from gnn_sparse_backend.compiler.cache import DiskCache, KernelStore, default, folders, store
from gnn_sparse_backend.compiler.cache.bounded import forget
from gnn_sparse_backend.compiler.codegen import load
from gnn_sparse_backend.compiler.packs.errors import NoKernelError
from gnn_sparse_backend.tensor.expressions.axes import axes
from tests.tensor.random_tensors import dense, sparse

A, B = sparse(4, 5), dense(5, 3)


def test_a_kernel_is_kept_for_other_numbers_of_rows_and_elements():
    a = st.array(A, "csr")
    kernel = st.compile("C[i,k] = A[i,j] * B[j,k]", A=a, B=B)
    np.testing.assert_allclose(kernel(A=a, B=B).to_dense(), A @ B)
    other, b = sparse(9, 2, seed=3), dense(2, 3)
    np.testing.assert_allclose(kernel(A=st.array(other, "csr"), B=b).to_dense(), other @ b)
    assert kernel.plan is st.compile("C[i,k] = A[i,j] * B[j,k]", A=a, B=B).plan
    assert kernel.expression == "C[i,k] = A[i,j] * B[j,k]" and str(kernel.format) == "dense"
    assert repr(kernel).startswith("Kernel(C[i,k] = A[i,j] * B[j,k]; A: csr float64, B: dense float64; result dense")


def test_its_stages_are_printed():
    text = st.compile("y[i] = A[i,j] * x[j]", A=st.array(A, "csr"), x=B[:, 0]).stages()
    for part in ("# Stage I,", "p.sparse_variable(", "# Stage II,", "# Stage III,", "# Assembly"):
        assert part in text
    assert "Sum_0[one] = Sum_0[one] + A[i, j] * x[j]" in text and "T.parallel(" in text


def test_rows_of_compressed_tensors_run_in_parallel():
    """The root of length 1 above the first level is no loop of its own."""
    x = dense(6)
    for format in ("dcsr", ("compressed", "compressed", "compressed")):
        t = sparse(4, 6) if format == "dcsr" else sparse(4, 5, 6)
        expression = "y[i] = A[i,j] * x[j]" if format == "dcsr" else "y[i,k] = A[i,k,j] * x[j]"
        kernel = st.compile(expression, A=st.array(t, format), x=x)
        loops = kernel.stages("stage3").split("T.parallel(")
        assert len(loops) == 3 and "S0_0_positions" in loops[2].split(")")[0]
    kernel = st.compile("y[i] = A[i,j] * x[j]", A=st.array(A, "coo"), x=B[:, 0])
    assert kernel.stages("stage3").count("T.parallel(") == 1  # rows of COO repeat: zeros alone are written side by side


@pytest.mark.parametrize(
    "operands, error, words",
    [
        (dict(A=st.array(A, "csc"), B=B), TypeError, "operand A is csc float64, .* was compiled for csr float64"),
        (dict(A=st.array(A, "csr"), B=B.astype("float32")), TypeError, "operand B is dense float32"),
        (dict(A=st.array(A, "csr", index_dtype="int64"), B=B), TypeError, "index_dtype int64, .*index_dtype int32"),
        (dict(A=st.array(A, "csr"), B=B[:, :2]), ValueError, "index 'k' has 2 values, .* compiled for 3"),
        (dict(A=st.array(A, "csr"), B=B[:4]), st.NotationError, "index 'j' has 4 values in B.j,k., and 5 in A.i,j."),
        (dict(A=st.array(A, "csr")), st.NotationError, "B is not given; there are A"),
        (dict(A=st.array(A, "csr"), B=B, D=B), TypeError, "operand D is not in the expression"),
        (dict(A=st.array(A, "csr"), B="b"), TypeError, "operand B: x is of type"),
    ],
)
def test_operands_of_other_kinds_are_refused(operands, error, words):
    kernel = st.compile("C[i,k] = A[i,j] * B[j,k]", A=st.array(A, "csr"), B=B)
    with pytest.raises(error, match=words):
        kernel(**operands)


S = st.array(A, "csr")


@pytest.mark.parametrize(
    "make, error, words",
    [
        (
            lambda: st.evaluate("y[i] = A[i,j] * A[j,i]", A=st.array(sparse(4, 4), "csr")),
            st.CoIterationError,
            "is read in two orders of its modes, and is stored in one; give it a second name",
        ),
        (lambda: st.evaluate("y[i] = x[i] / A[i,j]", A=S, x=B[:4, 0]), st.NotationError, "A is sparse, and division"),
        (
            lambda: st.evaluate("y[i,j] = exp(A[i,j])", A=S),
            st.NotationError,
            "exp.* is not zero where A stores nothing",
        ),
        (lambda: st.evaluate("y[i,j] = A[i,j] / (1 + x[j])", A=S, x=B[:, 0]), st.NotationError, "the divisor is a sum"),
        (lambda: st.evaluate("y[i,j] = A[i,j] / 0", A=S), st.NotationError, "division by 0"),
        (lambda: st.evaluate("y[q] = A[i,j]", A=S), st.NotationError, "index 'q' of the result is in no operand"),
        (lambda: st.evaluate("y[i] = A[i]", A=S), st.NotationError, r"A has 2 modes, shape \(4, 5\), and 1 indices"),
        (lambda: st.evaluate("y[i] = A[i,j]", A=S, format="csr"), st.FormatError, "csr is of tensors with 2 modes"),
        (
            lambda: st.evaluate("y[i] = format[i,j] * x[j]", format=A, x=B[:, 0]),
            TypeError,
            "an operand has the name 'format', which is that of an argument; call it otherwise",
        ),
        (lambda: S @ np.ones(4), ValueError, r"@ of the shapes \(4, 5\) and \(4,\): 5 is not 4"),
        (lambda: S @ np.ones(()), ValueError, "@ is of arrays with modes"),
        (lambda: S + np.ones(4), ValueError, r"shapes \(4, 5\) and \(4,\) do not broadcast"),
        (lambda: st.array(np.ones((4, 4)), "bsr"), st.FormatError, r"has blocks of a size: write 'bsr\(4\)'"),
        (lambda: S.sum(2), ValueError, "axis 2 names modes of 2"),
        (lambda: S.sum(1.5), TypeError, "axis 1.5 is not an integer, several in a tuple, or None"),
        (lambda: S.sum("x"), TypeError, "axis 'x' is not an integer"),
        (lambda: S.sum((0, "x")), TypeError, r"axis \(0, 'x'\) is not an integer"),
        (lambda: S * None, TypeError, "unsupported operand"),
        (
            lambda: st.array(A.astype("int8"), "csr") * 300,
            ValueError,
            r"the number 300 does not fit int8, the type of the operands; use .to\(dtype=...\) before",
        ),
        (lambda: 2**63 - st.array(A.astype(int), "csr"), ValueError, "does not fit int64"),
        (lambda: S * 10**400, ValueError, "does not fit float64"),
        (lambda: S.to(dtype="float16") * 1e5, ValueError, "the number 100000.0 does not fit float16"),
        (lambda: st.evaluate("y[i] = a * x[i]", a=300, x=np.ones(3, "int8")), ValueError, "300 does not fit int8"),
        (
            lambda: st.array(np.ma.masked_array(A, A > 0)),
            TypeError,
            r"x is a masked array, whose mask would be lost; give x.filled\(0\)",
        ),
        (
            lambda: st.evaluate("y[i] = 4000000000 * x[i]", x=np.arange(3, dtype="int32")),
            st.NotationError,
            "the number 4000000000 does not fit int32, the type of the result; give an operand of another",
        ),
    ],
)
def test_what_is_not_computed_is_refused_in_words(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.short(2)
@pytest.mark.parametrize("format", ["csr", "coo", "bsr(2)", "dia", "dense"])
def test_operators(format):
    a, x, row = st.array(A, format), dense(5), dense(4, 1)
    for found, want in (
        (a @ x, A @ x),
        (a @ B, A @ B),
        (dense(2, 4) @ a, dense(2, 4) @ A),
        (x @ a.T, x @ A.T),
        (a * 2, 2 * A),
        (0.5 * a, A / 2),
        (a / 4, A / 4),
        (-a, -A),
        (abs(a), abs(A)),
        (a * x, A * x),
        (a * row, A * row),
        (a + a, 2 * A),
        (a - 0.5 * a, A / 2),
        (a + x, A + x),
        (x - a, x - A),
        (a + 1, A + 1),
        (a + st.array(sparse(4, 5, seed=9), "dense"), A + sparse(4, 5, seed=9)),
        (a.sum(), A.sum()),
        (a.sum(0), A.sum(0)),
        (a.sum((-1, 0)), A.sum()),
        (a.sum(np.int64(-1)), A.sum(1)),
    ):
        assert isinstance(found, st.Array)
        np.testing.assert_allclose(found.to_dense(), want, rtol=1e-12, atol=1e-12)
    for found in (a * 2, a / 4, -a, abs(a), a * x, a * row, a + a):
        assert found.format == a.format  # nothing is filled
    np.testing.assert_allclose((1 / st.array(dense(3), "dense")).to_dense(), 1 / dense(3))
    np.testing.assert_allclose(np.asarray(a), A)


def test_integers_divided_are_no_integers():
    found = st.array(np.array([[0, 3]]), "csr") / 2
    assert found.dtype == "float64" and found.to_dense().tolist() == [[0, 1.5]]


def test_numbers_beyond_int64_are_floats_beside_floats():
    np.testing.assert_array_equal((S * 2**70).to_dense(), A * 2.0**70)
    found = st.evaluate("y[i,j] = 99999999999999999999 * A[i,j]", A=S)
    np.testing.assert_allclose(found.to_dense(), A * 1e20)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "int8"])
def test_numbers_have_the_type_of_the_operands(dtype):
    a = torch.tensor([[0, 3], [-2, 1]]).to(getattr(torch, dtype))
    found = [2 * st.array(a, "csr"), st.array(a, "csr") - 1, st.evaluate("y[i,j] = a * A[i,j]", a=2, A=a)]
    for each, want in zip(found, (2 * a, a - 1, 2 * a)):
        assert each.dtype == dtype and torch.equal(each.to_torch(), want)
    if dtype == "bfloat16":
        assert torch.equal((st.array(a, "csr") * 0.1).to_torch(), a * torch.tensor(0.1).bfloat16())


def test_names_of_a_program_do_not_clash():
    found = st.evaluate("n_i[in_,call] = A[in_,X_call] * S0_[X_call,call]", A=S, S0_=B)
    np.testing.assert_allclose(found.to_dense(), A @ B)
    np.testing.assert_allclose(st.einsum("\u03b1\u03b2,\u03b2\u03b3->\u03b1\u03b3", S, B).to_dense(), A @ B)


def test_arrays_are_read_where_they_lie():
    """Also from what is not contiguous, or may not be written to."""
    x = dense(10)[::2]
    x.flags.writeable = False
    np.testing.assert_allclose((S @ x).to_dense(), A @ x)
    np.testing.assert_allclose((S @ torch.tensor(B).T.contiguous().T).to_dense(), A @ B)
    assert isinstance((S @ torch.tensor(B)).values, torch.Tensor) and isinstance((S @ B).values, np.ndarray)


@pytest.mark.parametrize(
    "format, kinds, rooted",
    [
        (st.csr, ["dense_fixed", "sparse_variable"], False),
        (st.dcsr, ["sparse_variable", "sparse_variable"], True),
        (st.coo(3), ["sparse_variable", "sparse_fixed", "sparse_fixed"], True),
        (st.ell, ["dense_fixed", "sparse_fixed"], False),
        (st.Format(("dense", "dense", "compressed")), ["dense_fixed", "dense_variable", "sparse_variable"], False),
        (st.Format(("compressed", "dense")), ["sparse_variable", "dense_fixed"], True),
        (st.dense(2), ["dense_fixed", "dense_fixed"], False),
    ],
    ids=str,
)
def test_levels_are_axes(format, kinds, rooted):
    made = axes(ProgramBuilder("program"), "T", format, "int64", widths=(3,))
    assert [axis.kind for axis in made.levels] == kinds and (made.root is not None) == rooted
    for axis, kind in zip(made.levels, format.levels):
        assert axis.unique == (kind != "compressed-nonunique") and axis.padded == (kind == "slots")
        assert axis.parent is None or axis.index_dtype == "int64"


def test_the_room_is_reached_from_the_package():
    assert gsb.tensor is st


def test_a_kernel_for_different_coordinates_takes_the_same_ones():
    """The reverse does not hold: what was compiled as one structure is visited as one."""
    one, other = (st.array(sparse(4, 5, seed=seed), "csr") for seed in (1, 2))
    kernel = st.compile("R[i,j] = A[i,j] + B[i,j]", A=one, B=other)
    np.testing.assert_array_equal(kernel(A=one, B=one).to_dense(), 2 * one.to_dense())
    kernel = st.compile("R[i,j] = A[i,j] + B[i,j]", A=one, B=one)
    with pytest.raises(TypeError, match="operand B is csr .* of structure 0"):
        kernel(A=one, B=other)


@pytest.mark.parametrize(
    "where, name, value, words",
    [
        (folders, "ROOM", 1 << 62, "there is no room to make a kernel in .*: set TMPDIR to a folder"),
        (store, "can_compile", lambda: False, r"is in no pack, and TVM, .* is not installed.* pip install apache-tvm"),
    ],
    ids=["no room", "no compiler"],
)
def test_without_a_kernel_an_expression_says_what_to_do(where, name, value, words, tmp_path, monkeypatch):
    """Nobody else computes expressions of such formats. The next call asks again."""
    monkeypatch.setattr(default.default_store, "_store", KernelStore(DiskCache(tmp_path), load))
    forget()
    a, x = st.array(A, "csr"), B[:, 0]
    with monkeypatch.context() as lacking:
        lacking.setattr(where, name, value)
        for call in (lambda: st.evaluate("y[i] = A[i,j] * x[j]", A=a, x=x), lambda: st.einsum("ij,j", a, x)):
            with pytest.raises(NoKernelError, match=words):
                call()
    np.testing.assert_allclose(st.evaluate("y[i] = A[i,j] * x[j]", A=a, x=x).to_dense(), A @ x)
