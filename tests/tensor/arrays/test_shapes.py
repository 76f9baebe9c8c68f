"""Other shapes of arrays, and arrays put together of several, against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import CUBE_FORMATS, MATRIX_FORMATS, sparse


@pytest.mark.parametrize("format", ("dense", *CUBE_FORMATS), ids=str)
@pytest.mark.parametrize(
    "shape", [(60,), (-1,), (5, 12), (12, -1), (3, 5, 4), (1, 3, 4, 1, 5), (2, 2, 3, 5, 1)], ids=str
)
def test_reshape(format, shape):
    x = sparse(3, 4, 5)
    a = st.array(x, format)
    for found in (
        a.reshape(shape),
        a.reshape(*shape),
        a.permute(2, 0, 1).reshape(5, 3, 4).permute(1, 2, 0).reshape(shape),
    ):
        np.testing.assert_array_equal(found.to_dense(), x.reshape(shape), strict=True)
    found = a.reshape(shape)
    if len(shape) == 3:
        assert found.format == a.format
    else:
        assert str(found.format) == {"dense": "dense", "csf": "csf"}.get(str(a.format), "coo").replace(
            "csf", "csf" if len(shape) > 2 else str(st.csf(len(shape)))
        )


@pytest.mark.parametrize("format", ("dense", *MATRIX_FORMATS), ids=str)
@pytest.mark.parametrize("shape, other", [((6, 4), (8, 3)), ((0, 3), (5, 0)), ((1, 1), (1, 1)), ((6, 4), (24, 1))])
def test_matrices_stay_in_their_format(format, shape, other):
    x = sparse(*shape)
    a = st.array(x, format, index_dtype="int64")
    found = a.reshape(other)
    np.testing.assert_array_equal(found.to_dense(), x.reshape(other))
    assert found.format == a.format and found.index_dtype == a.index_dtype


def test_reshape_of_numbers_and_nothing():
    assert st.array(2.0).reshape(1, 1).shape == (1, 1) and float(st.array([[3.0]], "csr").reshape(())) == 3
    assert st.array(np.ones((0, 4)), "csr").reshape(0, 7).shape == (0, 7)


@pytest.mark.parametrize(
    "shape, error, words",
    [
        ((5, 5), ValueError, r"shape \(5, 5\) is not one of the 24 elements that the shape \(6, 4\) has"),
        ((-1, -1), ValueError, "24 elements"),
        ((-1, 5), ValueError, "24 elements"),
        ((-1, 0), ValueError, "24 elements"),
        ((-2, -12), ValueError, "24 elements"),
        ((2.0, 12), TypeError, "is not several integers"),
        ("ab", TypeError, "is not several integers"),
    ],
)
def test_shapes_that_do_not_fit(shape, error, words):
    for format in ("dense", "csr"):
        with pytest.raises(error, match=words):
            st.array(sparse(6, 4), format).reshape(shape)


def test_more_elements_than_can_be_numbered():
    a = st.array((([1], [2], [3]), [1.0]), "csf", shape=(2**30, 2**30, 2**30))
    with pytest.raises(ValueError, match="has more than 2"):
        a.reshape(-1)


@pytest.mark.parametrize("format", ("dense", *MATRIX_FORMATS), ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_stack_and_concatenate(format, axis):
    a, b = sparse(4, 5), sparse(4, 5, seed=1)
    one, other = st.array(a, format), st.array(b, "csc")
    found = st.concatenate([one, other, one], axis)
    np.testing.assert_array_equal(found.to_dense(), np.concatenate([a, b, a], axis))
    assert found.format == one.format
    found = st.stack((one, other), axis)
    np.testing.assert_array_equal(found.to_dense(), np.stack([a, b], axis))
    assert found.format == (st.dense(3) if format == "dense" else st.csf(3) if one.format == st.csf(2) else st.coo(3))


def test_whatever_array_takes_is_joined():
    a = sparse(3, 4)
    found = st.concatenate([scipy.sparse.csr_array(a), a.tolist(), torch.tensor(a), st.array(a, "csf")])
    np.testing.assert_array_equal(found.to_dense(), np.concatenate([a] * 4))
    assert str(found.format) == "csr" and found.nnz == 4 * np.count_nonzero(a)
    assert st.stack([1.0, 2.0]).to_dense().tolist() == [1, 2]
    assert st.concatenate([np.ones((0, 2)), np.ones((3, 2))]).shape == (3, 2)
    assert st.concatenate([st.array(a, "csr")]).nnz == np.count_nonzero(a)


@pytest.mark.parametrize(
    "dtypes", [("int8", "int32"), ("int64", "float32"), ("float16", "bfloat16"), ("bfloat16", "bfloat16")]
)
def test_types_are_promoted(dtypes):
    one, other = (torch.tensor([[0, 2], [3, 0]]).to(getattr(torch, dtype)) for dtype in dtypes)
    want = "float64" if dtypes == ("int64", "float32") else str(torch.promote_types(one.dtype, other.dtype))[6:]
    found = st.stack([st.array(one, "csr"), st.array(other, "coo")])
    assert found.dtype == want and found.to_torch().tolist() == [[[0, 2], [3, 0]]] * 2


def test_gradients():
    x = sparse(4, 6, density=0.8)
    at = np.nonzero(x)
    values = torch.tensor(x[at], requires_grad=True)
    for format in ("csr", "coo", "dia", "bsr(2)"):

        def joined(values, format=format):
            a = st.array((at, values), format, shape=x.shape)
            return st.stack([st.concatenate([a, a]), st.concatenate([a, x])]).reshape(-1, 6).to_torch()

        assert torch.autograd.gradcheck(joined, values)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda a: st.stack([]), ValueError, "stack takes one array or more"),
        (lambda a: st.stack(a), TypeError, "stack takes arrays in a list or tuple"),
        (lambda a: st.stack([a, a[:2]]), ValueError, r"array 1 has the shape \(2, 4\), and array 0 \(3, 4\)"),
        (lambda a: st.stack([a], 3), ValueError, "axis 3 is not one of 3 modes"),
        (lambda a: st.stack([a], 0.5), TypeError, "axis 0.5 is not an integer"),
        (lambda a: st.concatenate([a, a[:, :2]]), ValueError, "they may differ in axis 0 alone"),
        (lambda a: st.concatenate([a, a[0]]), ValueError, r"array 1 has the shape \(4,\)"),
        (lambda a: st.concatenate([1.0, 2.0]), ValueError, "without modes are not concatenated; use stack"),
        (lambda a: st.concatenate([a], -3), ValueError, "axis -3 is not one of 2 modes"),
    ],
)
def test_what_does_not_fit_is_told(call, error, words):
    with pytest.raises(error, match=words):
        call(st.array(sparse(3, 4), "csr"))
