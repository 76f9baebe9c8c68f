"""Expressions in every format against NumPy's einsum in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.compiler import interpret
from tests.tensor.random_tensors import CUBE_FORMATS, MATRIX_FORMATS, dense, sparse

SHAPES = ((6, 9), (0, 4), (4, 0), (1, 1))


def assert_same(found: st.Array, want: np.ndarray) -> None:
    np.testing.assert_allclose(found.to_dense(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("format", MATRIX_FORMATS, ids=str)
def test_products_of_a_matrix(format, shape, index_dtype):
    m, n = shape
    a, x, b = sparse(m, n), dense(n), dense(n, 4)
    u, v = dense(m, 5), dense(n, 5, seed=2)
    A = st.array(a, format, index_dtype=index_dtype)
    assert_same(st.evaluate("y[i] = A[i,j] * x[j]", A=A, x=x), a @ x)
    assert_same(st.evaluate("C[i,k] = A[i,j] * B[j,k]", A=A, B=b), a @ b)
    assert_same(st.evaluate("C[k,i] = A[i,j] * B[j,k]", A=A, B=b), (a @ b).T)
    assert_same(st.evaluate("y[j] = A[i,j]", A=A), a.sum(0))
    assert_same(st.evaluate("s = A[i,j]", A=A), a.sum())
    for result, order in (("S[i,j]", (0, 1)), ("S[j,i]", (1, 0))):
        sampled = st.evaluate(f"{result} = A[i,j] * U[i,k] * V[j,k]", A=A, U=u, V=v)
        assert sampled.format == A.format.permuted(order) and sampled.structure.levels is not A.structure.levels
        assert sampled.nnz == A.nnz
        assert_same(sampled, (a * (u @ v.T)).transpose(order))


@pytest.mark.parametrize("format", CUBE_FORMATS, ids=str)
def test_products_of_a_tensor_of_order_3(format):
    t, x, m = sparse(4, 5, 6), dense(6), dense(7, 6)
    c, d, e = dense(5, 3), dense(6, 3), dense(4, 3)
    B = st.array(t, format)
    for wanted in (None, "csr"):
        ttv = st.evaluate("A[i,j] = B[i,j,k] * x[k]", B=B, x=x, format=wanted)
        assert str(ttv.format) == (wanted or "dense")
        assert_same(ttv, np.einsum("ijk,k->ij", t, x))
    for wanted in (None, "csf", st.Format(("compressed", "compressed", "dense"))):
        ttm = st.evaluate("A[i,j,k] = B[i,j,l] * M[k,l]", B=B, M=m, format=wanted)
        assert_same(ttm, np.einsum("ijl,kl->ijk", t, m))
    assert_same(st.evaluate("A[i,j] = B[i,k,l] * C[k,j] * D[l,j]", B=B, C=c, D=d), np.einsum("ikl,kj,lj->ij", t, c, d))
    assert_same(st.evaluate("A[k,j] = B[i,k,l] * E[i,j] * D[l,j]", B=B, E=e, D=d), np.einsum("ikl,ij,lj->kj", t, e, d))
    assert_same(st.evaluate("A[l,j] = B[i,k,l] * E[i,j] * C[k,j]", B=B, E=e, C=c), np.einsum("ikl,ij,kj->lj", t, e, c))
    assert_same(st.evaluate("s = B[i,j,k] * B[i,j,k]", B=B), (t * t).sum())


@pytest.mark.parametrize("shape", [(3, 4, 2, 5), (3, 2, 4, 2, 3), (3, 0, 2, 4)])
def test_mttkrp_of_higher_orders_along_every_mode(shape):
    t, letters = sparse(*shape, density=0.3), "ijklm"[: len(shape)]
    factors = [dense(n, 4, seed=at) for at, n in enumerate(shape)]
    B = st.array(t, "csf")
    for mode in range(len(shape)):
        others = [n for n in range(len(shape)) if n != mode]
        subscripts = ",".join([letters, *(f"{letters[n]}r" for n in others)]) + f"->{letters[mode]}r"
        want = np.einsum(subscripts, t, *(factors[n] for n in others))
        assert_same(st.einsum(subscripts, B, *(factors[n] for n in others)), want)
    assert_same(st.einsum(f"{letters},{letters[-1]}->{letters[:-1]}", B, dense(shape[-1])), t @ dense(shape[-1]))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8"])
def test_every_type(dtype):
    rng = np.random.default_rng(0)
    a, x = (rng.integers(-3, 4, shape) * (rng.random(shape) < 0.6) for shape in ((5, 7), (7,)))
    given = [torch.tensor(each).to(getattr(torch, dtype)) for each in (a, x)]
    found = st.evaluate("y[i] = A[i,j] * x[j]", A=st.array(given[0], "csr"), x=given[1])
    assert found.dtype == dtype and found.to_torch().dtype == given[0].dtype
    np.testing.assert_array_equal(found.to_torch().double().numpy(), a @ x)
    if dtype != "bfloat16":
        found = st.evaluate("y[i] = A[i,j] * x[j]", A=st.array(given[0].numpy(), "csr"), x=given[1].numpy())
        assert found.to_dense().dtype == dtype
        np.testing.assert_array_equal(found.to_dense(), a @ x)


@pytest.mark.parametrize(
    "types, want",
    [
        (("float32", "float64"), "float64"),
        (("float16", "bfloat16"), "float32"),
        (("bfloat16", "float64"), "float64"),
        (("int32", "float32"), "float64"),
        (("int8", "int64"), "int64"),
    ],
)
def test_types_are_promoted(types, want):
    a, x = (torch.ones(shape).to(getattr(torch, dtype)) for shape, dtype in zip(((2, 2), (2,)), types))
    found = st.evaluate("y[i] = A[i,j] * x[j]", A=st.array(a, "csr"), x=x)
    assert found.dtype == want and found.to_torch().tolist() == [2, 2]


def test_sums_of_16_bits_are_exact_to_one_rounding():
    x = np.ones((1, 4096), "float16")
    assert st.evaluate("y[i] = A[i,j]", A=st.array(x, "csr")).to_dense().tolist() == [4096]


A, B, X = sparse(5, 6), dense(5, 6), dense(6)


@pytest.mark.parametrize(
    "expression, want",
    [
        ("y[i] = A[i,j] * x[j] + b[i]", A @ X + B[:, 0]),
        ("y[i] = 2 * (A[i,j] - 3 * A[i,j]) * x[j]", -4 * A @ X),
        ("y[i] = A[i,j] * x[j] / (4 * b[i])", A @ X / (4 * B[:, 0])),
        ("y[i] = -A[i,j] * s", -A.sum(1) * 1.5),
        ("R[i,j] = A[i,j] * D[i,j] - A[i,j]", A * B - A),
        ("R[i,j] = A[i,j] + D[i,j]", A + B),
        ("R[i,j] = A[i,j] + s", A + 1.5),
        ("R[i,j] = tanh(A[i,j]) * exp(x[j])", np.tanh(A) * np.exp(X)),
        ("R[i,j] = relu(A[i,j] * x[j])", np.maximum(A * X, 0)),
        ("R[i,j] = sqrt(abs(A[i,j]))", np.sqrt(abs(A))),
        ("y[i] = sigmoid(b[i])", 1 / (1 + np.exp(-B[:, 0]))),
        ("R[j,i] = A[i,j]", A.T),
        ("R[i,j,k] = A[i,j] * x[k]", A[:, :, None] * X),
        ("y = D[i,j] * x[j]", (B @ X).sum()),
        ("C[i,k] = D[i,j] * D[k,j]", B @ B.T),
        ("s2 = s * 2", 3.0),
        ("d[i] = x[i] - x[i]", 0 * X),
    ],
)
@pytest.mark.parametrize("format", ["csr", "coo", "bsr(2)", "dia", "ell"])
def test_expressions(expression, want, format):
    known = dict(A=st.array(A, format), D=B, x=X, b=B[:, 0], s=1.5)
    named = {
        name: x for name, x in known.items() if any(f"{name}{c}" in expression.split("=")[1] + " " for c in "[ )*")
    }
    assert_same(st.evaluate(expression, **named), want)


def test_the_diagonal_and_the_same_tensor_twice():
    a = sparse(5, 5)
    for format in MATRIX_FORMATS:
        found = st.array(a, format)
        assert_same(st.evaluate("s = A[i,i]", A=found), np.trace(a))
        assert_same(st.evaluate("d[i] = A[i,i]", A=found), np.diag(a))
        assert_same(st.evaluate("R[i,j] = A[i,j] + A[j,i]", A=found, format="dense"), a + a.T)
        assert_same(st.evaluate("R[i,j] = A[i,j] * B[i,j]", A=found, B=found.with_values(found.values * 2)), 2 * a * a)
    assert_same(st.einsum("ii->", dense(4, 4)), np.trace(dense(4, 4)))


def test_what_is_not_stored_is_zero_whatever_it_meets():
    a = np.array([[1.0, 0], [0, 0], [0, 2]])
    for format in MATRIX_FORMATS[:-2]:
        found = st.evaluate("y[i] = A[i,j] * x[j]", A=st.array(a, format), x=np.array([np.inf, 3]))
        assert found.to_dense().tolist() == [np.inf, 0, 6]
        # a factor that leaves the sum meets no row that has none
        factors = {"x": np.array([np.inf, 3]), "d": np.array([1, np.inf, -1])}
        found = st.evaluate("y[i] = 2 * A[i,j] * d[i] * x[j]", A=st.array(a, format), **factors)
        assert found.to_dense().tolist() == [np.inf, 0, -12]


@pytest.mark.parametrize("format", ["dense", "csr", "csc", "coo", "dcsr", "ell", "dia", "bsr(2)"])
def test_results_in_any_format(format):
    for expression, want in (("R[i,j] = A[i,j] * D[i,j]", A * B), ("R[i,j] = A[i,k] * D[j,k]", A @ B.T)):
        found = st.evaluate(expression, A=st.array(A, "csr"), D=B, format=format)
        assert found.format == st.array(want, format).format
        assert_same(found, want)


def test_the_interpreter_agrees():
    a, b = st.array(sparse(4, 5), "dcsr"), dense(5, 3)
    kernel = st.compile("C[i,k] = A[i,j] * B[j,k]", A=a, B=b)
    first, second = a.structure.levels
    known = {"n_i": 4, "n_j": 5, "A": a.values, "B": b, "C": np.zeros((4, 3))}
    known |= {"S0_0_extent": 4, "S0_0_positions": first.positions, "S0_1_extent": 5, "S0_1_positions": second.positions}
    known |= {"S0_0_offsets": first.offsets, "S0_0_indices": first.indices}
    known |= {"S0_1_offsets": second.offsets, "S0_1_indices": second.indices}
    want = interpret(kernel.program, {name: known[name] for name in kernel.program.parameter_names})["C"]
    np.testing.assert_allclose(kernel(A=a, B=b).to_dense(), want, rtol=1e-12)


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 4, 2, 5), (3, 2, 4, 2, 3)], ids=len)
def test_ttv_ttm_and_inner_products_along_every_mode(shape):
    t, u, letters = sparse(*shape), sparse(*shape, seed=7), "ijklm"[: len(shape)]
    B = st.array(t, "csf")
    for mode, (letter, n) in enumerate(zip(letters, shape)):
        left = letters.replace(letter, "")
        v, m = dense(n), dense(6, n)
        assert_same(st.einsum(f"{letters},{letter}->{left}", B, v), np.tensordot(t, v, (mode, 0)))
        to = letters.replace(letter, "r")
        assert_same(st.einsum(f"{letters},r{letter}->{to}", B, m), np.moveaxis(np.tensordot(t, m, (mode, 1)), -1, mode))
    for other in (st.array(u, "csf"), u):
        assert_same(st.einsum(f"{letters},{letters}->", B, other), np.vdot(t, u))


@pytest.mark.parametrize("format", [None, ("compressed",)])
@pytest.mark.parametrize("matrix", ["csr", "csc", "dcsr", "coo"])
def test_a_matrix_times_a_sparse_vector(matrix, format):
    a, x = sparse(6, 7), sparse(7, seed=3)
    for vector in (x, 0 * x):
        found = st.evaluate(
            "y[i] = A[i,j] * x[j]", format=format, A=st.array(a, matrix), x=st.array(vector, ("compressed",))
        )
        assert_same(found, a @ vector)
        assert format is None or found.format == st.Format(format)


@pytest.mark.parametrize("format", ["csr", "coo", "dcsr", "ell", "bsr(2, 3)", "dia"])
def test_functions_of_what_they_are_multiplied_by(format):
    """They are not asked for where that stores nothing, whatever they would be."""
    rng = np.random.default_rng(8)
    a, b = (rng.integers(1, 4, (6, 6)) * (rng.random((6, 6)) < 0.4) / 2 for _ in range(2))
    leaf = torch.tensor(a, requires_grad=True)
    B = st.array(b, "csr")
    stored = torch.from_numpy(a) != 0
    for expression, wanted in {
        "C[i,j] = A[i,j] * exp(A[i,j])": lambda x: x * x.exp(),
        "C[i,j] = log(A[i,j]) * A[i,j] * B[i,j]": lambda x: torch.where(stored, x, 1).log() * x * torch.from_numpy(b),
    }.items():
        A = st.array(leaf, format)
        found = st.evaluate(expression, A=A, **({"B": B} if "B[" in expression else {}), format="dense").to_torch()
        torch.testing.assert_close(found, wanted(leaf), rtol=1e-14, atol=1e-14)
        mine, theirs = (torch.autograd.grad(x.sum(), leaf)[0] for x in (found, wanted(leaf)))
        torch.testing.assert_close(mine * stored, theirs * stored, rtol=1e-13, atol=1e-13)
    with pytest.raises(st.NotationError, match="is not zero where A stores"):
        st.evaluate("C[i,j] = exp(A[i,j]) * B[i,j]", A=A, B=B)
