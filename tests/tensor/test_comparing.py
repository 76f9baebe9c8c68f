"""Comparisons, truth values and choices, element by element, against NumPy and PyTorch."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import scipy.sparse
import torch

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import MATRIX_FORMATS, dense, sparse

COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
OF_UNEQUAL = (operator.lt, operator.gt, operator.ne)
A = sparse(6, 5).round(1)
B = np.where(sparse(6, 5, seed=3, density=0.3) != 0, A, sparse(6, 5, seed=5).round(1))  # equal to A in places


def assert_same(found: st.Array, want: np.ndarray) -> None:
    assert isinstance(found, st.Array)
    assert found.dtype == str(want.dtype) and found.shape == want.shape
    np.testing.assert_array_equal(found.to_dense(), want)


@pytest.mark.parametrize("format", [*MATRIX_FORMATS, "dense"], ids=str)
def test_arrays_are_compared_element_by_element(format):
    a, b = st.array(A, format), st.array(B, "csr")
    for compare in COMPARISONS:
        for first, second, x, y in ((a, b, A, B), (b, a, B, A), (a, a, A, A), (a, B, A, B), (B, a, B, A)):
            assert_same(compare(first, second), compare(x, y))
        for number in (0, 1, -0.5, np.float32(0.1), np.inf, np.nan, True):
            assert_same(compare(a, number), compare(A, number))
            assert_same(compare(number, a), compare(number, A))
    assert not a.format.is_dense or (a < b).format.is_dense


def test_what_is_not_stored_stays_so_where_zeros_do_not_compare():
    a, b = st.array(A, "csr"), st.array(B, "dcsr")
    for compare in COMPARISONS:
        assert (compare(a, b).format == st.csr) == (compare in OF_UNEQUAL)
    assert (a > b).nnz == ((A != 0) | (B != 0)).sum()
    assert (a > 1).format == st.csr and (a > 1).nnz == a.nnz and (a < 1).format.is_dense
    assert (a > 1).structure is a.structure


@pytest.mark.parametrize("shape", [(1, 5), (6, 1), (5,), (1,), (1, 1), ()])
@pytest.mark.parametrize("format", ["coo", "dense"])
def test_broadcasting(shape, format):
    x = np.asarray(sparse(*shape, seed=8, density=0.7))
    beside = st.array(x, format if shape else None)
    for compare in COMPARISONS:
        assert_same(compare(st.array(A, "csr"), beside), compare(A, x))
        assert_same(compare(beside, st.array(A, "csr")), compare(x, A))
    assert_same(st.where(beside, st.array(A, "csr"), st.array(B, "csc")), np.where(x, A, B))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)])
def test_nothing_and_one(shape):
    x = np.zeros(shape)
    for compare in COMPARISONS:
        assert_same(compare(st.array(x, "csr"), st.array(x, "coo")), compare(x, x))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int8", "bool"])
@pytest.mark.parametrize("compare", COMPARISONS)
def test_types(dtype, compare):
    x = torch.tensor(A * 3).to(getattr(torch, dtype))
    a, b = st.array(x, "csr"), st.array(B, "csr")
    assert torch.equal(compare(a, b).to_torch(), compare(x.double(), torch.tensor(B)))
    for number in (2, 300, -300.5, 0.1):
        want = compare(
            x.double(), number if dtype in ("int64", "int8", "bool") else float(torch.tensor(number).to(x.dtype))
        )
        assert torch.equal(compare(a, number).to_torch(), want), number
    if dtype != "bfloat16":
        assert_same(compare(st.array(x.numpy(), "csc"), b), compare(x.numpy(), B))


def test_infinities_and_nan():
    x = np.array([[np.nan, np.inf, 0, 1], [-np.inf, np.nan, 0, 0]])
    y = np.array([[np.nan, np.inf, np.nan, 0], [np.inf, 0, np.nan, 0]])
    for compare in COMPARISONS:
        assert_same(compare(st.array(x, "csr"), st.array(y, "csr")), compare(x, y))


def test_none_and_what_is_no_array():
    a = st.array(A, "csr")
    assert_same(a == None, A == None)  # noqa: E711
    assert_same(a != None, A != None)  # noqa: E711
    assert (a == None).format == st.csr  # noqa: E711
    assert not (a == "text") and a != "text"
    with pytest.raises(TypeError):
        _ = a < "text"
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)
    with pytest.raises(ValueError, match=r"bool\(\) is of an array without modes"):
        bool(a == a)
    assert (st.array(3.0) == 3).to_dense() and bool(st.array(3.0) == 3)
    with pytest.raises(ValueError, match=r"shapes \(6, 5\) and \(4,\) do not broadcast"):
        _ = a < np.ones(4)


def test_truth_values_stay_what_they_are():
    truths = A > 0
    for given in (
        st.array(truths, "csr"),
        st.array(scipy.sparse.csr_array(truths)),
        st.array(torch.tensor(truths), "coo"),
        st.array((np.stack(np.nonzero(truths)), np.ones(truths.sum(), bool)), "csc", shape=truths.shape),
        st.array(A, "csr") > 0,
        st.array(A, "csr").to(dtype="int8").to(dtype="bool") & truths | (st.array(A, "csr") > 0),
    ):
        assert_same(given, truths)
        assert given.to_scipy().dtype == bool and given.to_torch().dtype == torch.bool
        assert_same(given.T, truths.T)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("combine", [operator.and_, operator.or_, operator.xor])
def test_truth_values_are_combined(kind, combine):
    x, y = A > 0, B > 0
    a, b, d = (st.array(torch.tensor(each) if kind == "torch" else each, "csr") for each in (x, y, x | y))
    assert_same(combine(a, b), combine(x, y))
    assert_same(combine(a, y), combine(x, y))
    assert_same(combine(y, a), combine(x, y))
    assert_same(combine(a, True), combine(x, True))
    assert_same(~combine(a, d), ~combine(x, x | y))
    assert combine(a, b).format == st.csr
    assert combine(a, y).format.is_dense == (combine is not operator.and_)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda a: a & a, "& is of truth values, not of float64; compare first"),
        (lambda a: (a > 0) | 1, r"\| is of truth values, not of int"),
        (lambda a: ~a, "~ is of truth values"),
        (lambda a: st.where(None, a, a), "condition is no array and no number: None"),
        (lambda a: st.where(a, a, "b"), "b is no array and no number"),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises(TypeError, match=words):
        make(st.array(A, "csr"))


def test_arithmetic_counts_truth_values():
    x, y = A > 0, B > 0
    a, b = st.array(x, "csr"), st.array(y, "csr")
    assert_same(a @ b.T, x.astype(int) @ y.T.astype(int))
    assert_same(a + b, x.astype(int) + y)
    assert_same(a * 2, x * 2)
    assert_same(a * 0.5, x * 0.5)
    assert_same(a.sum(0), x.sum(0))
    assert_same(a * st.array(A.astype("float32"), "csr"), x * A.astype("float32"))
    assert_same(a @ dense(5, 2).astype("float32"), (x @ dense(5, 2).astype("float32")))
    assert (a @ st.array(torch.ones(5).bfloat16())).dtype == "bfloat16"


@pytest.mark.parametrize("condition", ["csr", "coo", "dense", "number"])
@pytest.mark.parametrize("a", ["csr", "dense", "number"])
@pytest.mark.parametrize("b", ["csc", "dense", "number", "zero"])
def test_where(condition, a, b):
    def made(x, format):
        if format in ("number", "zero"):
            return (bool(x[0, 0]) if x.dtype == bool else 2.5,) * 2 if format == "number" else (0, 0)
        return st.array(x, format), x

    (c, x), (d, y), (e, z) = made(A > 0, condition), made(B, a), made(sparse(6, 5, seed=7), b)
    found, want = st.where(c, d, e), np.where(x, y, z)
    assert_same(found, want)
    stored = {condition, a, b} & {"csr", "csc", "coo"}
    zero = [each in stored or (np.ndim(v) == 0 and not v) for each, v in ((condition, x), (a, y), (b, z))]
    assert found.format.is_dense != bool(stored and zero[2] and (zero[0] or zero[1]))


def test_gradients_of_a_choice():
    at = np.stack(np.nonzero(A))
    condition = st.array(B, "csr") > 0

    def function(a, b):
        first, second = (st.array((at, each), "csr", shape=A.shape) for each in (a, b))
        return st.where(condition, first, second * second).to_torch()

    values = [torch.tensor(dense(at.shape[1], seed=seed), requires_grad=True) for seed in (1, 2)]
    assert torch.autograd.gradcheck(function, values)


def test_results_beyond_memory_are_refused():
    huge = st.array(((np.array([3]), np.array([5])), np.ones(1)), "dcsr", shape=(10**8, 10**8))
    assert (huge > 0).nnz == 1
    with pytest.raises(MemoryError, match=r"an ordinary array of the shape \(100000000, 100000000\)"):
        _ = huge == huge
