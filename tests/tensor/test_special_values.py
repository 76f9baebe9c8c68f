"""Values, numbers and names that random tests do not draw, against NumPy, SciPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.runtime.pool import POOL
from gnn_sparse_backend.tensor import FormatError
from tests.tensor.random_tensors import MATRIX_FORMATS

SPECIAL = np.array([[1.0, -0.0, np.inf], [np.nan, 0.0, -np.inf], [5e-324, -5e-324, 1e308]])


def assert_bits(found, want) -> None:
    """The same numbers, zeros with their signs."""
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(want))


@pytest.mark.parametrize("format", MATRIX_FORMATS, ids=str)
def test_elements_stay_what_they_are(format):
    at, signs = np.indices((3, 3)).reshape(2, 9), np.array([1, 0, 2, 8, 7, 3, 4, 6, 5])
    for values in (SPECIAL.ravel()[signs], torch.from_numpy(SPECIAL.ravel()[signs])):
        a = st.array((at[:, signs], values), format)
        assert_bits(a.to_dense(), SPECIAL)
        if format != ("compressed", "dense"):  # whose zeros are left out
            assert_bits(a.to("csc").to_dense(), SPECIAL)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["coordinates", "coo"])
def test_repeated_coordinates_are_added_up_with_one_rounding(dtype, kind):
    at, values = torch.zeros(2, 4096, dtype=torch.long), torch.ones(4096, dtype=getattr(torch, dtype))
    if kind == "coo":
        values = torch.sparse_coo_tensor(at, values, (1, 1), check_invariants=True)
    values.requires_grad_()
    found = st.array((at, values) if kind == "coordinates" else values, "csr").to_torch()
    assert found.dtype == values.dtype and found.item() == 4096
    (gradient,) = torch.autograd.grad(found.sum(), values)
    assert gradient.dtype == values.dtype and gradient.to_dense().max() == 1


def test_of_repeated_truth_values_one_is_enough():
    at, ones = np.zeros((2, 3), int), np.ones(3, bool)
    scipy_coo = scipy.sparse.coo_array((ones, tuple(at)), shape=(1, 1))
    torch_coo = torch.sparse_coo_tensor(torch.from_numpy(at), torch.from_numpy(ones), (1, 1), check_invariants=True)
    for given in ((at, ones), scipy_coo, torch_coo):
        assert st.array(given).to_dense().tolist() == [[True]]


def test_numpy_arrays_in_any_order_of_bytes():
    x = np.arange(6.0).reshape(2, 3)
    for given in (x.astype(">f8"), x.astype("<f8"), x[::-1, ::-1].astype(">f4")[::-1, ::-1]):
        np.testing.assert_array_equal((st.array(given, "csr") @ np.ones(3)).to_dense(), x.sum(1))
    found = st.array((np.array([[1], [2]], ">i4"), np.array([5], ">i2"))).to_dense()
    assert found.dtype == "int16" and found.tolist() == [[0, 0, 0], [0, 0, 5]]


@pytest.mark.parametrize("kind", ["coo_array", "csr_array", "dok_array"])
def test_vectors_of_scipy(kind):
    if np.lib.NumpyVersion(scipy.__version__) < "1.15.0":
        pytest.skip("vectors of every kind came with SciPy 1.15")
    x = np.array([0.0, 1, 0, np.inf])
    assert_bits(st.array(getattr(scipy.sparse, kind)(x)).to_dense(), x)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_matrices_of_pytorch_side_by_side():
    x = torch.eye(6).reshape(2, 3, 6)
    assert torch.equal(st.array(x.to_sparse_csr()).to_torch(), x)


def _torch(make, *arrays):
    return make(*(torch.tensor(each) for each in arrays), torch.ones(2), (2, 2), check_invariants=False)


def _scipy():
    matrix = scipy.sparse.coo_array(([1.0, 1.0], ([0, 1], [0, 1])), shape=(2, 2))
    matrix.row[1] = 7
    return matrix


@pytest.mark.parametrize(
    "make, words",
    [
        (_scipy, "coordinate 7 of mode 0"),
        (lambda: _torch(torch.sparse_coo_tensor, [[0, 1], [0, 9]]), "coordinate 9 of mode 1"),
        (lambda: _torch(torch.sparse_coo_tensor, [[0, -1], [0, 1]]), "coordinate -1 of mode 0"),
        (lambda: _torch(torch.sparse_csr_tensor, [0, 1, 2], [0, 9]), "coordinate 9 of x, a tensor of torch.sparse_csr"),
        (lambda: _torch(torch.sparse_csc_tensor, [0, 1, 2], [0, -1]), "coordinate -1 of x, a tensor of"),
        (lambda: _torch(torch.sparse_csr_tensor, [0, 5, 2], [0, 1]), "do not ascend from 0 to its 2"),
        (lambda: (np.array([[2**64 - 1], [0]], np.uint64), [1.0]), f"coordinate {2**64 - 1} is more than"),
        (lambda: ([[2**63 - 1], [0]], [1.0]), f"coordinate {2**63 - 1} is more than"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_coordinates_out_of_the_shape_are_refused_whoever_has_them(make, words):
    with pytest.raises(ValueError, match=words):
        st.array(make(), "csr")


@pytest.mark.parametrize(
    "values, words",
    [
        (np.ones(2, np.uint8), "values is of type uint8"),
        (np.ones(2, complex), "values is of type complex128"),
        (np.ones((2, 2)), r"2 positions are stored, and values of the shape \(2, 2\)"),
        (3.0, r"values of the shape \(\) are given"),
    ],
)
def test_other_values_of_an_array_are_looked_at(values, words):
    a = st.array(np.eye(2), "csr")
    assert a.with_values([2, 3]).to_dense().tolist() == [[2, 0], [0, 3]]
    with pytest.raises((TypeError, st.FormatError), match=words):
        a.with_values(values)


def test_numpy_gets_a_copy_where_it_asks_for_one():
    x = np.eye(2)
    a = st.array(x)
    np.array(a)[0, 0] = 5
    np.array(a, dtype="float64", copy=True)[0, 0] = 5
    assert a.to_dense().tolist() == [[1, 0], [0, 1]]
    assert np.shares_memory(np.asarray(a), x) and np.asarray(a, dtype="float32").dtype == "float32"
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        assert np.shares_memory(np.asarray(a, copy=False), x)
        for given in (a, st.array(x, "csr")):
            with pytest.raises(ValueError, match="copy"):
                np.asarray(given, dtype=None if given is not a else "float32", copy=False)


@pytest.mark.parametrize("format", ["dense", "csr", "ell"])
def test_second_derivatives_that_are_zero(format):
    """PyTorch passes them as tensors without memory."""
    x = torch.tensor([[1.0, -2.0], [0.0, 3.0]], dtype=torch.double, requires_grad=True)
    found = st.evaluate("R[i,j] = abs(2 * A[i,j])", A=st.array(x, format), format="dense").to_torch()
    (first,) = torch.autograd.grad(found.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(first, 2 * x.sign()) and not second.any()


def test_quotients_and_numbers_of_a_product():
    x = np.array([5e-324, 4e-309, 3.0, 0.0])
    assert_bits(st.evaluate("y[i] = 0 / x[i]", x=x).to_dense()[:3], [0, 0, 0])
    assert_bits(st.evaluate("y[i] = 0.5 / x[i]", x=x).to_dense(), [np.inf, 0.5 / 4e-309, 0.5 / 3, np.inf])
    assert_bits(st.evaluate("y[i] = 70000 * x[i]", x=np.array([0.5], "float16")).to_dense(), [np.float16(35000)])


@pytest.mark.parametrize(
    "expression, dtype, number",
    [
        ("1e400 * x[i]", "float64", "inf"),
        ("1e300 * x[i]", "float32", "1e.300"),
        ("x[i] / 1e-40", "float32", "1e.40"),
        ("x[i] / 1e-310", "float64", "inf"),
        ("abs(1e300 * x[i])", "float32", "1e.300"),
        ("abs(99999999999999999999999 - x[i])", "int64", "99999999999999999999999"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(expression, dtype, number):
    with pytest.raises(st.NotationError, match=f"the number {number} does not fit {dtype}"):
        st.evaluate(f"y[i] = {expression}", x=np.ones(2, dtype))


@pytest.mark.parametrize("text", ["Y[i] = {}[i,j] * w[j]", "{}[i] = A[i,j] * w[j]", "Y[i] = A[i,{0}] * w[{0}]"])
@pytest.mark.parametrize("name", ["one", "S0_0", "W0_1", "One", "n", "p", "nnz", "Sum", "exp"])
def test_names_that_programs_have(text, name):
    given = {name: np.eye(3), "A": np.eye(3), "w": np.arange(3.0)}
    names = [each for each in (name, "A", "w") if f"{each}[" in text.format(name).partition("=")[2]]
    for format in ("csr", "dense"):
        found = st.evaluate(text.format(name), **{k: st.array(given[k], format if k != "w" else None) for k in names})
        assert found.to_dense().tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["lambda", "in", "float", "program", "None", "return"])
def test_names_with_a_meaning_in_programs_are_refused_in_words(name):
    for text in (f"Y[i] = {name}[i,j] * w[j]", f"{name}[i] = A[i,j] * w[j]"):
        with pytest.raises(st.NotationError, match=f"the name '{name}' has a meaning in the text of programs"):
            st.evaluate(text, **{name: np.eye(3), "A": np.eye(3), "w": np.ones(3)})


def test_numbers_of_arrays_without_modes():
    a = st.array(np.diag([1.5, 2.0]), "csr")
    assert float(a.sum()) == 3.5 and int(a.sum()) == 3 and bool(a.sum()) and not (a * 0).sum()
    for function in (float, int, bool):
        with pytest.raises(ValueError, match=rf"{function.__name__}\(\) is of an array without modes, not .*\(2, 2\)"):
            function(a)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
def test_truth_values_are_numbers_of_the_type_beside_them(dtype):
    """As NumPy promotes them."""
    values = np.arange(9, dtype=dtype).reshape(3, 3)
    truth = np.array([[True, False, True], [False, False, True], [True, True, False]])
    for given in (truth, torch.from_numpy(truth), scipy.sparse.csr_array(truth)):
        for found in (
            st.evaluate("R[i,j] = A[i,j] * B[i,j]", A=values, B=given),
            st.evaluate("R[i,j] = B[i,j] * A[i,j]", B=given, A=values),
            st.array(values) * given,
        ):
            assert found.dtype == dtype
            assert np.array_equal(found.to_dense(), values * truth)
    assert st.einsum("ij,jk->ik", truth, truth).dtype == "int64"


def test_what_numpy_calls_a_sum():
    a = st.array(np.arange(6.0).reshape(2, 3), "csr")
    assert float(np.sum(a)) == 15 and np.array_equal(np.sum(a, axis=0).to_dense(), [3, 5, 7])
    for given in ({"dtype": "float32"}, {"out": np.zeros(())}):
        with pytest.raises(TypeError, match="in its own type and memory"):
            a.sum(**given)


def test_what_does_not_fit_into_memory_is_refused_in_words():
    wide = st.array((np.array([[0, 1], [0, 1]]), np.array([1.0, 2.0])), shape=(2**20, 2**20))
    with pytest.raises(MemoryError, match="a result of 1,099,511,627,776 elements of float64 takes"):
        st.evaluate("R[i,j] = A[i,j] + b", A=wide, b=1.0)
    with pytest.raises(MemoryError, match="there are no 4,611,686,018,427,387,904 bytes"):
        POOL.lease(1 << 62)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch was built without MKL-DNN")
def test_a_tensor_of_mkldnn_is_refused_in_words():
    with pytest.raises(FormatError, match="layout torch._mkldnn, which is not read; give x.to_dense"):
        st.array(torch.ones(2, 3).to_mkldnn())
