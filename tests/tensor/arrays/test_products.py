"""Products by NumPy's names, and einsum in every way in which NumPy's is called, against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import sparse

MATMULS = [
    ((5,), (5,)),
    ((4, 5), (5,)),
    ((5,), (5, 6)),
    ((4, 5), (5, 6)),
    ((5,), (2, 5, 3)),
    ((2, 3, 5), (5,)),
    ((3, 4, 5), (5, 6)),
    ((4, 5), (3, 5, 6)),
    ((3, 4, 5), (3, 5, 6)),
    ((1, 4, 5), (3, 5, 6)),
    ((3, 4, 5), (1, 5, 6)),
    ((3, 1, 2, 5), (2, 1, 4, 5, 2)),
    ((1, 1), (1, 1)),
    ((0, 5), (5, 3)),
    ((2, 3, 0), (2, 0, 4)),
]
DOTS = [((3, 4, 5), (2, 5, 6)), ((4, 5), (5,)), ((), (3, 4)), ((3,), ()), ((), ()), ((5,), (3, 5, 2)), ((2, 0), (0, 3))]
TENSORDOTS = [
    ((3, 4), (4, 3), (1, 0)),
    ((3, 4), (5, 4, 3), ((0, 1), (2, 1))),
    ((3, 4, 5), (4, 5, 2), 2),
    ((3, 4, 5), (4, 5, 2), [[1, -1], [0, 1]]),
    ((4,), (4,), 1),
    ((2, 3), (4,), 0),
    ((3, 4), (5, 4), ([1], [-1])),
]


NAMES = "dense", "coo", "csf", "csr", "csc"
ONE = pytest.mark.parametrize("one", NAMES)
OTHER = pytest.mark.parametrize("other", NAMES)


def operand(shape, name, seed=0):
    """An ordinary array, and the same in a format; coo where the format is one of matrices."""
    x = sparse(*shape, seed=seed, density=0.6)
    if name == "dense" or not shape:
        return x, x
    return x, st.array(x, name if len(shape) == 2 or name == "csf" else "coo")


def assert_close(found, want):
    assert isinstance(found, st.Array) and found.shape == want.shape
    np.testing.assert_allclose(found.to_dense(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.short(12)
@OTHER
@ONE
@pytest.mark.parametrize("shapes", MATMULS, ids=str)
def test_matmul(shapes, one, other):
    (x, a), (y, b) = operand(shapes[0], one), operand(shapes[1], other, seed=1)
    assert_close(st.matmul(a, b), np.matmul(x, y))
    if isinstance(a, st.Array) or isinstance(b, st.Array):
        assert_close(a @ b, np.matmul(x, y))


@pytest.mark.short(12)
@OTHER
@ONE
@pytest.mark.parametrize("shapes", DOTS, ids=str)
def test_dot(shapes, one, other):
    (x, a), (y, b) = operand(shapes[0], one), operand(shapes[1], other, seed=1)
    assert_close(st.dot(a, b), np.dot(x, y))
    if isinstance(a, st.Array):
        assert_close(a.dot(b), np.dot(x, y))


@pytest.mark.short(8)
@OTHER
@ONE
@pytest.mark.parametrize("a_shape, b_shape, axes", TENSORDOTS)
def test_tensordot(a_shape, b_shape, axes, one, other):
    (x, a), (y, b) = operand(a_shape, one), operand(b_shape, other, seed=1)
    assert_close(st.tensordot(a, b, axes), np.tensordot(x, y, axes))


def test_whatever_array_takes_is_multiplied():
    x, y = sparse(3, 4), sparse(4, 2)
    for a in (scipy.sparse.csr_array(x), x.tolist(), torch.tensor(x), st.array(x, "ell")):
        for b in (scipy.sparse.coo_array(y), y.tolist(), torch.tensor(y), st.array(y, "dia")):
            assert_close(st.matmul(a, b), x @ y)
            assert_close(st.tensordot(a, b, 1), x @ y)
    assert_close(st.dot(2, st.array(x, "csr")), 2 * x)
    assert_close(st.array(x, "csr").dot(0.5), x / 2)
    assert str((st.array(x, "csr") @ st.array(y, "csr")).format) == "csr"


@pytest.mark.parametrize(
    "dtypes", [("int8", "int16"), ("int32", "float32"), ("float16", "float64"), ("int8", "float16")]
)
def test_types_are_promoted(dtypes):
    x, y = np.array([[[0, 2], [3, 0]]], dtypes[0]), np.array([[1, 2], [0, 3]], dtypes[1])
    want = np.matmul(x, y)
    for found in (st.matmul(st.array(x, "coo"), y), st.dot(x, st.array(y, "csr"))):
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(found.to_dense(), want)


def test_numbers_that_are_not_finite():
    x, y = np.array([[[np.nan, 1.0], [0.0, np.inf]]]), np.array([[2.0, 1.0], [0.5, 3.0]])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(st.matmul(st.array(x, "csf"), y).to_dense(), [[[np.nan] * 2, [np.inf] * 2]])


@pytest.mark.short(2)
@pytest.mark.parametrize("shapes", [((2, 3, 4), (4, 2)), ((1, 3, 4), (2, 4, 2)), ((4,), (4, 2))], ids=str)
def test_gradients(shapes):
    x, y = sparse(*shapes[0], density=0.7), sparse(*shapes[1], density=0.7)
    at = np.nonzero(x)
    values, dense = torch.tensor(x[at], requires_grad=True), torch.tensor(y, requires_grad=True)

    def product(values, y):
        return st.matmul(st.array((at, values), "csf", shape=x.shape), y).to_torch()

    assert torch.autograd.gradcheck(product, (values, dense))


ELLIPSES = [
    ("...ab,...ab", (2, 3, 4), (2, 3, 4)),
    ("...ab,...b->...a", (2, 3, 4), (4,)),
    ("...ab,...bc", (2, 3, 4), (1, 4, 2)),
    ("...ab,...bc->...ac", (5, 1, 3, 4), (2, 4, 2)),
    ("...ab,...bc->ac...", (3, 4), (2, 4, 2)),
    ("a...,a...", (3, 2), (3, 2)),
    ("a...b->b...a", (3, 2, 4), None),
    ("a...->a...", (3,), None),
    ("... -> ...", (3, 2), None),
    ("B...a,a->...", (3, 2, 4), (4,)),
    ("...a->a", (3,), None),
]


@pytest.mark.short(12)
@pytest.mark.parametrize("format", ["coo", "csf"])
@pytest.mark.parametrize("text, one, other", ELLIPSES)
def test_an_ellipsis(text, one, other, format):
    given = [sparse(*shape, density=0.7) for shape in (one, other) if shape is not None]
    want = np.einsum(text, *given)
    assert_close(st.einsum(text, *(st.array(x, format) for x in given)), want)
    assert_close(st.einsum(text, st.array(given[0], format), *given[1:]), want)


@pytest.mark.parametrize(
    "lists",
    [
        [[0, 0]],
        [[0, 1], [1]],
        [[Ellipsis, 1], [Ellipsis]],
        [[0, Ellipsis]],
        [[51, 3], [3, 51]],
        [[30, 2]],
        [(1, 0), ()],
    ],
)
def test_lists_of_indices(lists):
    x = sparse(4, 4)
    assert_close(st.einsum(st.array(x, "csr"), *lists), np.einsum(x, *lists))
    y = sparse(4, 3)
    assert_close(st.einsum(st.array(x, "csr"), [0, 1], y, [1, 2], [2, 0]), np.einsum(x, [0, 1], y, [1, 2], [2, 0]))


A, B = st.array(sparse(3, 4), "csr"), st.array(sparse(2, 3, 4), "csf")


@pytest.mark.parametrize(
    "call, error, words",
    [
        (
            lambda: st.matmul(A, 2.0),
            ValueError,
            r"@ is of arrays with modes, and these have the shapes \(3, 4\) and \(\)",
        ),
        (lambda: A @ B, ValueError, r"@ of the shapes \(3, 4\) and \(2, 3, 4\): 4 is not 3"),
        (lambda: st.matmul(B, np.ones((3, 4, 2))), ValueError, r"do not broadcast: 2 is not 3"),
        (lambda: st.dot(A, A), ValueError, r"dot of the shapes \(3, 4\) and \(3, 4\)"),
        (lambda: st.dot("a", A), TypeError, "'a' is not an array"),
        (lambda: A.dot("a"), TypeError, "'a' is not what `array` takes"),
        (lambda: st.tensordot(A, B, 3), ValueError, "axes 3 is not a number of modes"),
        (lambda: st.tensordot(A, B, (0, 0)), ValueError, "3 is not 2"),
        (lambda: st.tensordot(A, B, (2, 0)), ValueError, "axis 2 is not one of the 2 modes"),
        (lambda: st.tensordot(A, B, ((0, 1), 1)), ValueError, "names 2 modes of a and 1 of b"),
        (lambda: st.tensordot(A, B, ((0, 0), (1, 1))), ValueError, "names a mode of the shape"),
        (lambda: st.tensordot(A, B, "01"), TypeError, "axes '01' is not a number of modes"),
        (lambda: st.tensordot(A, B, (0.5, 1)), TypeError, "axes 0.5 is not several integers"),
        (lambda: st.einsum("a..,a", A, A), st.NotationError, "'.' is not an index"),
        (lambda: st.einsum("...a...", A), st.NotationError, "an ellipsis stands once"),
        (lambda: st.einsum("...abc->...", A), st.NotationError, r"modes of the shape \(3, 4\)"),
        (lambda: st.einsum("...a->a", A), st.NotationError, "the result has no ellipsis"),
        (lambda: st.einsum("...a,a", A), st.NotationError, "subscripts of 2 operands, and 1 are given"),
        (lambda: st.einsum("...a,...a", A, np.ones((2, 4))), ValueError, "3"),
        (lambda: st.einsum(A, [0, 60]), TypeError, "integers from 0 to 51, or Ellipsis"),
        (lambda: st.einsum(A, 0), TypeError, "subscripts are a text"),
        (lambda: st.einsum([0, 0], A, A), TypeError, r"subscripts are a text such as .* not \[0, 0\]"),
        (lambda: st.einsum(A, [0, 1], A, 3), TypeError, "indices 3 are not a list of integers"),
    ],
)
def test_what_does_not_fit_is_told(call, error, words):
    with pytest.raises(error, match=words):
        call()
