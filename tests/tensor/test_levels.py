"""Sums level by level: every width, order and type, against NumPy in float64."""

from __future__ import annotations

import itertools
import weakref

import numpy as np
import pytest

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import dense, sparse

LETTERS = "ijklm"
EPS = {"float64": 1e-14, "float32": 1e-5, "float16": 4e-3}


def close(found: st.Array, want: np.ndarray, dtype: str, terms: np.ndarray) -> None:
    """Within rounding of the sum of the magnitudes of all terms."""
    got = np.asarray(found.to_dense()).astype(np.float64)
    assert got.shape == want.shape and str(found.dtype) == dtype
    assert (np.abs(got - want) <= EPS.get(dtype, 0) * (terms + 1e-30)).all()


def values(x: np.ndarray, dtype: str) -> np.ndarray:
    return (x * 3).astype(dtype)


@pytest.mark.short(5)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64"])
@pytest.mark.parametrize(("order", "width"), [(2, 1), (2, 40), (2, 300), (3, 3), (3, 17), (3, 130), (4, 33), (5, 2)])
def test_factored_sums(order, width, dtype):
    """MTTKRP along the first mode; of order 2 a product of matrices."""
    shape = (6, 5, 4, 3, 2)[:order]
    t = values(sparse(*shape), dtype)
    factors = {name: values(dense(n, width, seed=n), dtype) for name, n in zip("CDEF", shape[1:])}
    products = " * ".join(f"{name}[{index},r]" for name, index in zip(factors, LETTERS[1:]))
    letters = LETTERS[:order]
    expression = f"A[i,r] = B[{','.join(letters)}] * {products}"
    einsum = f"{letters},{','.join(f'{index}r' for index in letters[1:])}->ir"
    given = [x.astype(np.float64) for x in (t, *factors.values())]
    want, terms = np.einsum(einsum, *given), np.einsum(einsum, *map(np.abs, given))
    formats = ["csr", "dcsr"] if order == 2 else ["csf", ("dense",) + ("compressed",) * (order - 1)]
    for format in formats:
        close(st.evaluate(expression, B=st.array(t, format), **factors), want, dtype, terms)


@pytest.mark.short(5)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64"])
@pytest.mark.parametrize("width", [1, 2, 7, 64, 100, 513])
def test_sampled_products(width, dtype):
    a = values(sparse(7, 5), dtype)
    u, v = values(dense(7, width), dtype), values(dense(5, width, seed=3), dtype)
    given = [x.astype(np.float64) for x in (a, u, v)]
    want, terms = np.einsum("ij,ir,jr->ij", *given), np.einsum("ij,ir,jr->ij", *map(np.abs, given))
    for format in ("csr", "csc", "dcsr", "coo"):
        found = st.evaluate("S[i,j] = A[i,j] * U[i,r] * V[j,r]", A=st.array(a, format), U=u, V=v)
        close(found, want, dtype, terms)


FOURTH_ORDER = (
    "csf",
    "coo",
    ("dense", "compressed", "dense", "compressed"),
    ("dense", "dense", "compressed", "compressed"),
    ("compressed", "compressed", "dense", "compressed"),
    ("dense", "slots", "compressed", "compressed"),
)


@pytest.mark.short(12)
@pytest.mark.parametrize("shape", [(5, 6, 7, 4), (3, 0, 2, 4), (1, 1, 1, 1)])
@pytest.mark.parametrize("kept", [1, 2, 3, 4])
@pytest.mark.parametrize("format", FOURTH_ORDER)
def test_first_levels_whose_coordinates_nobody_reads_are_one_loop(format, kept, shape):
    """Their elements lie under each other in any way: what a kept element gets is exact, wherever it is stored."""
    t = np.rint(3 * sparse(*shape))
    x = np.arange(2.0, 2 + shape[-1])
    b = st.array(t, format)
    indices = "ijkl"[:kept]
    expression = f"A[{','.join(indices)}] = B[i,j,k,l] * x[l]"
    wanted = None if format == "coo" or kept == 4 else b.format.levels[:kept]
    found = st.evaluate(expression, B=b, x=x, format=wanted)
    np.testing.assert_array_equal(found.to_dense(), np.einsum(f"ijkl,l->{indices}", t, x))


def test_the_fibres_of_a_tensor_are_one_loop():
    t, x = np.rint(3 * sparse(5, 6, 7, 4)), np.arange(4.0)
    kernel = st.compile("A[i,j,k] = B[i,j,k,l] * x[l]", B=st.array(t, "csf"), x=x, format="csf")
    program = kernel.stages("program")
    assert "iterate('term0', (S0_elements,), 'S', ('element',))" in program
    np.testing.assert_array_equal(kernel(B=st.array(t, "csf"), x=x).to_dense(), np.einsum("ijkl,l->ijk", t, x))
    read = st.compile("A[i,j,k] = B[i,j,k,l] * C[j,l]", B=st.array(t, "csf"), C=dense(6, 4), format="csf")
    assert "S0_elements" not in read.stages("program")  # C is read by the second coordinate


@pytest.mark.parametrize("format", ["csf", ("dense", "compressed", "compressed"), ("dense", "dense", "compressed")])
def test_an_infinite_factor_meets_no_fibre_that_is_not_stored(format):
    t = np.zeros((3, 2, 4))
    t[0, 0, 1], t[2, 1, 3] = 2.0, 3.0
    c, d = np.array([[1.0], [np.inf]]), np.ones((4, 1))
    found = st.evaluate("A[i,r] = B[i,j,k] * C[j,r] * D[k,r]", B=st.array(t, format), C=c, D=d)
    assert found.to_dense().ravel().tolist() == [2.0, 0.0, np.inf]


def test_several_products_share_the_features_of_a_row():
    a, b, x, y = sparse(6, 5), sparse(6, 4, seed=9), dense(5, 70), dense(4, 70, seed=2)
    operands = {"A": st.array(a, "csr"), "B": st.array(b, "dcsr"), "X": x, "Y": y, "d": dense(6)}
    found = st.evaluate("C[i,r] = A[i,j] * X[j,r] * tanh(d[i]) - B[i,k] * Y[k,r] / 2", **operands)
    want = a @ x * np.tanh(operands["d"])[:, None] - b @ y / 2
    np.testing.assert_allclose(found.to_dense(), want, rtol=1e-12, atol=1e-13)


def test_divisors_and_functions_of_a_level():
    t, c, d = sparse(4, 5, 6), dense(5) + 3, dense(6)
    found = st.evaluate("y[i] = B[i,j,k] / c[j] * exp(d[k]) * 3", B=st.array(t, "csf"), c=c, d=d)
    np.testing.assert_allclose(found.to_dense(), 3 * np.einsum("ijk,j,k->i", t, 1 / c, np.exp(d)), rtol=1e-12)


def test_a_kernel_for_far_operands_is_right():
    """Operands beyond a core's own cache are fetched ahead."""
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(50, size=400), rng.integers(90_000, size=400)
    a = st.array(((rows, columns), rng.standard_normal(400)), "csr", shape=(50, 90_000))
    x = rng.standard_normal((90_000, 16))
    np.testing.assert_allclose((a @ x).to_dense(), a.to_scipy() @ x, rtol=1e-12, atol=1e-13)
    u = rng.standard_normal((50, 16))
    found = st.evaluate("S[i,j] = A[i,j] * U[i,r] * V[j,r]", A=a, U=u, V=x)
    at, sampled = found.coordinates()
    want = np.asarray(a.values) * np.einsum("er,er->e", u[at[0]], x[at[1]])
    np.testing.assert_allclose(sampled, want, rtol=1e-10, atol=1e-12)


def test_large_results_that_are_alive_share_no_memory():
    """They lie in memory that earlier results have left."""
    a, x = st.array(np.eye(3), "csr"), np.ones((3, 1 << 19))
    products = [a @ (x * n) for n in range(4)]
    del products[1]
    products.append(a @ (x * 7))
    sparse_sums = [st.array(np.full((2, 1 << 19), n + 1.0), "csr") + a_of_ones() for n in range(3)]
    for found, n in zip(products, (0, 2, 3, 7)):
        assert bool((np.asarray(found.to_dense()) == n).all())
    for n, found in enumerate(sparse_sums):
        assert bool((found.values == n + 2).all()) and found.nnz == 2 << 19


def a_of_ones() -> st.Array:
    return st.array(np.ones((2, 1 << 19)), "csr")


def test_a_kernel_keeps_no_operand_alive():
    a = st.array(sparse(9, 8), "csr")
    kernel = st.compile("y[i] = A[i,j] * x[j]", A=a, x=dense(8))
    first = kernel(A=a, x=dense(8))
    assert np.array_equal(kernel(A=a, x=dense(8)).values, first.values)
    indices = weakref.ref(a.structure.levels[1].indices)
    del a
    assert indices() is None
    other = sparse(9, 8, seed=2)
    np.testing.assert_allclose(kernel(A=st.array(other, "csr"), x=dense(8)).to_dense(), other @ dense(8))


@pytest.mark.parametrize("first", list(itertools.product(("dense", "compressed"), repeat=3)), ids=str)
@pytest.mark.parametrize("second", [None, ("compressed",)], ids=str)
def test_an_index_that_occurs_twice_in_a_tensor(first, second):
    """Its diagonal, on levels of every kind, beside an operand that is walked."""
    generator = np.random.default_rng(0)
    a = generator.random((3, 4, 4)) * (generator.random((3, 4, 4)) < 0.6)
    b = generator.random(4) * [1, 0, 1, 1]
    found = st.einsum("baa,a->b", st.array(a, first), st.array(b, second))
    np.testing.assert_allclose(found.to_dense(), np.einsum("baa,a->b", a, b))
