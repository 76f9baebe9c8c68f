"""Parts of arrays by every kind of index, against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs
from hypothesis.extra import numpy as hnp

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import CUBE_FORMATS, MATRIX_FORMATS, sparse

FORMATS = ("dense", st.Format(("dense",) * 3, (2, 0, 1)), st.Format(("compressed",) * 3, (1, 2, 0)), *CUBE_FORMATS)
CUBE = sparse(4, 5, 6)
KEYS = {
    "an integer": 2,
    "a negative integer": -1,
    "all integers": (1, np.int32(2), torch.tensor(3)),
    "slices with steps": (slice(3, 0, -1), slice(None, None, 2), slice(-5, -1)),
    "slices of nothing": (slice(3, 1), slice(9, 12)),
    "an ellipsis": (Ellipsis, 2),
    "an ellipsis of no modes": (1, Ellipsis, slice(1, 4), 2),
    "nothing": (),
    "new modes": (None, 1, None, Ellipsis, None),
    "rows by a list": [3, 0, 3],
    "columns by an array": (slice(None), np.array([1, 4, 1], "uint8")),
    "an array between": (0, np.array([4, 2]), slice(2, 5)),
    "an array of two modes": np.array([[0, 3, 1], [2, 2, 0]]),
    "an array of one": torch.tensor([2]),
    "no rows": [],
    "a range": range(1, 3),
    "points": ([0, 1, 0], [1, 4, 1]),
    "points that are broadcast": ([[0], [3]], slice(1, 3), [1, 4, 1]),
    "points apart": (0, slice(None), [1, 2]),
    "points apart, behind a mode": (slice(None), 0, None, [1, 2]),
    "points beside each other": (slice(None), 0, [1, 2]),
    "a mask": CUBE > 0.2,
    "a mask that is a list": [True, False, True, True],
    "a mask of the first modes": torch.from_numpy(CUBE[..., 0] != 0),
    "a mask of the last mode": (Ellipsis, CUBE[0, 0] != 0),
    "a mask of two modes behind one": (slice(None), CUBE[0] < 0),
    "a mask of nothing": np.zeros((4, 5, 6), bool),
    "a mask beside an array": (CUBE[:, 0, 0] != 0, [0]),
    "an array of ours": st.array([2, 0]),
}


def for_numpy(key):
    """A key with arrays of NumPy in it."""
    if isinstance(key, tuple):
        return tuple(map(for_numpy, key))
    return np.asarray(key) if isinstance(key, (torch.Tensor, st.Array)) else key


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("name", KEYS)
def test_every_kind_of_index(name, format):
    key = KEYS[name]
    want = CUBE[for_numpy(key)]
    a = st.array(CUBE, format)
    found = a[key]
    assert found.shape == want.shape and found.dtype == "float64"
    np.testing.assert_array_equal(found.to_dense(), want)
    assert found.format.is_dense == (a.format.is_dense or not want.ndim)


@pytest.mark.parametrize("format", ("dense", *MATRIX_FORMATS), ids=str)
@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (0, 3), (3, 0), (6, 1)])
def test_rows_and_columns_of_matrices(shape, format):
    x = sparse(*shape)
    a = st.array(x, format, index_dtype="int64")
    rows = np.arange(shape[0])[[-1, 0, -1]] if shape[0] else []
    for key in (slice(1, 4), (slice(None), slice(None, None, -2)), rows, (slice(None), slice(0, 1)), Ellipsis):
        found = a[key]
        np.testing.assert_array_equal(found.to_dense(), x[key])
        assert found.format == a.format  # as it has its modes
        assert found.index_dtype == a.index_dtype
        if a.format.exact:
            assert found.nnz == np.count_nonzero(x[key])
    for n, row in enumerate(a):
        np.testing.assert_array_equal(row.to_dense(), x[n])
    assert len(a) == shape[0]


indices = hs.one_of(
    hs.integers(-3, 2), hs.slices(3), hs.none(), hs.just(Ellipsis), hs.lists(hs.integers(-3, 2), max_size=4)
)


@settings(max_examples=60, deadline=None)
@given(
    key=hs.lists(indices, max_size=5).map(tuple) | hnp.arrays(bool, (3, 3)),
    format=hs.sampled_from([*FORMATS, st.Format(("dense", "compressed", "slots"), (2, 1, 0))]),
)
def test_random_indices(key, format):
    x = sparse(3, 3, 3)
    a = st.array(x, format)
    try:
        want = x[key]
    except IndexError:
        with pytest.raises(IndexError):
            a[key]
        return
    np.testing.assert_array_equal(a[key].to_dense(), want, strict=True)


def test_formats_of_parts():
    csr, csc, csf, coo = (
        st.array(CUBE[0], "csr"),
        st.array(CUBE[0], "csc"),
        st.array(CUBE, "csf"),
        st.array(CUBE, "coo"),
    )
    assert str(csr[1:3].format) == "csr" and str(csr[[2, 0]].format) == "csr" and str(csr[:, ::2].format) == "csr"
    assert str(csc[:, [1, 1]].format) == "csc"
    assert csr[1].format == st.csf(1) and str(csr[:, 1].format) == "coo"
    assert str(csf[1].format) == "dcsr" and str(coo[1].format) == "coo" and str(csf[None].format) == "coo"
    assert str(csf[CUBE > 0].format) == "coo" and csf[0, 0, 0].format == st.dense(0)


def test_an_integer_for_each_mode_is_a_number():
    a = st.array([[0.0, 2.5], [0.0, 0.0]], "csr")
    assert float(a[0, 1]) == 2.5 and float(a[1, 0]) == 0 and a[0, 1].shape == ()
    assert int(st.array([3, 4])[1]) == 4


def test_zeros_that_are_stored_and_values_that_are_no_numbers():
    at = np.array([[0, 0, 1, 2], [0, 2, 1, 0]])
    for format in MATRIX_FORMATS:
        a = st.array((at, [np.nan, 0.0, np.inf, 1.0]), format, shape=(3, 3))
        np.testing.assert_array_equal(a[:2].to_dense(), [[np.nan, 0, 0], [0, np.inf, 0]])
        if a.format.exact:
            assert a[[0]].nnz == 2 and a[0].nnz == 2  # a zero that is stored stays


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("format", ["dense", "csr", "bsr(2)", "coo"])
def test_types(dtype, format):
    x = torch.tensor([[0, 1, 2], [3, 0, 5]]).to(getattr(torch, dtype))
    found = st.array(x, format)[::-1, [0, 2]]
    assert found.dtype == dtype
    assert found.to_torch().tolist() == [[3, 5], [0, 2]]


@pytest.mark.parametrize(
    "format", ["dense", "csr", "dcsr", "coo", "ell", "dia", "bsr(2)", ("compressed", "dense")], ids=str
)
@pytest.mark.parametrize(
    "key", [slice(3, 0, -1), [3, 0, 3], 2, (slice(None), [1, 1]), (3, 2), ([0, 3], [1, 2])], ids=str
)
def test_gradients(format, key):
    x = sparse(5, 6, density=0.9)
    values = torch.tensor(x[x != 0], requires_grad=True)

    def part(values):
        return st.array((np.nonzero(x), values), format, shape=x.shape)[key].to_torch()

    assert torch.autograd.gradcheck(part, values)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8"])
def test_parts_are_computed_with(dtype):
    x = (sparse(60, 40) * 3).astype(dtype)
    y = np.arange(80).reshape(40, 2).astype(dtype)
    for format in ("dense", "csr"):
        a = st.array(x, format)
        for first in (1, 2, 3, 5):  # whose arrays begin anywhere in memory
            b = a[first:]
            np.testing.assert_allclose((b @ y).to_dense(), x[first:] @ y, rtol=1e-5)
            np.testing.assert_array_equal((b * 2).to_dense(), x[first:] * 2)
            np.testing.assert_allclose((b.T @ b).to_dense(), x[first:].T @ x[first:], rtol=1e-3, atol=1e-5)


def test_huge_extents_cost_nothing():
    at = np.array([3, 70_000_000, 99_999_999])
    a = st.array(((at, at[::-1]), np.arange(1.0, 4.0)), "dcsr", shape=(10**8, 10**8))
    assert a[50_000_000:].nnz == 2 and float(a[3, 99_999_999]) == 1 and a[:, 70_000_000].nnz == 1
    assert a[[99_999_999, 0]].coordinates()[0].tolist() == [[0], [3]] and a[::-1, ::-1].nnz == 3


@pytest.mark.parametrize(
    "key, error, words",
    [
        (4, IndexError, r"index 4 of mode 0 is out of the shape \(4, 5, 6\)"),
        ((0, -6), IndexError, "index -6 of mode 1"),
        ((0, 1, 2, 3), IndexError, r"index \(0, 1, 2, 3\) names 4 modes, and the shape \(4, 5, 6\) has 3"),
        ((Ellipsis, Ellipsis), IndexError, "more than one Ellipsis"),
        ([0, 4], IndexError, "index 4 of mode 0"),
        (([0, 1], [0, 1, 2]), IndexError, r"shapes \(2,\) and \(3,\) do not broadcast"),
        (np.ones((4, 4), bool), IndexError, r"a mask of the shape \(4, 4\) selects of the extents \(4, 5\)"),
        (1.0, TypeError, "index 1.0 is not an integer, a slice"),
        ([1.0], TypeError, r"index \[1.0\] is not"),
        ("a", TypeError, "index 'a' is not"),
        (True, TypeError, "index True is not"),
        (np.True_, TypeError, "index np.True_ is not"),
        ([[0], [1, 2]], TypeError, "is not an integer"),
        ({}, TypeError, "index {} is not"),
        (slice(0.5), TypeError, r"index slice\(None, 0.5, None\) is a slice of what are not integers"),
        (slice(None, None, 0), ValueError, "of the step 0"),
    ],
    ids=str,
)
def test_what_is_no_index_is_told(key, error, words):
    for format in ("dense", "csf"):
        with pytest.raises(error, match=words):
            st.array(CUBE, format)[key]


def test_arrays_are_not_assigned_to():
    a = st.array(CUBE, "csf")
    with pytest.raises(TypeError, match="arrays are immutable; make another one"):
        a[0] = 1
    with pytest.raises(TypeError, match="an array without modes has no length"):
        len(a[0, 0, 0])
    with pytest.raises(TypeError):
        iter(a[0, 0, 0])
