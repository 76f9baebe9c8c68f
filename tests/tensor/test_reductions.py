"""Reductions over modes against NumPy's, and their gradients against PyTorch's."""

from __future__ import annotations

import warnings
from itertools import combinations

import numpy as np
import pytest
import torch

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import CUBE_FORMATS, MATRIX_FORMATS, dense, sparse

NAMES = ("max", "min", "mean", "any", "all", "sum")


def matrix(dtype: str = "float64") -> np.ndarray:
    """With rows and columns that are empty, full, of one sign, and of equal elements."""
    x = sparse(7, 5, density=0.4) * 4
    x[0], x[1], x[2], x[:, 0] = 0, [1, 2, 3, 4, 5], [-1, -2, -1, -4, -1], np.abs(x[:, 0]) + 1
    x[3] = [0, -2, 0, 0, -1]
    return x.astype(dtype)


def axes(modes: int) -> list:
    several = [each for count in range(modes + 1) for each in combinations(range(modes), count)]
    return [None, *several, *range(-modes, modes)]


def assert_reduced(a: st.Array, x: np.ndarray, name: str, axis, keepdims: bool = False) -> None:
    found = getattr(a, name)(axis, keepdims=keepdims)
    want = getattr(x, name)(axis, keepdims=keepdims)
    assert isinstance(found, st.Array)
    assert found.dtype == want.dtype and found.shape == want.shape, (found, want.dtype, want.shape)
    np.testing.assert_allclose(found.to_dense(), want, rtol=1e-12)


@pytest.mark.parametrize("format", [*MATRIX_FORMATS, "dense"], ids=str)
def test_matrices_in_every_format(format):
    x = matrix()
    for name in NAMES:
        for axis in axes(2):
            assert_reduced(st.array(x, format), x, name, axis)
        assert_reduced(st.array(x, format), x, name, 1, keepdims=True)


@pytest.mark.parametrize("format", ["csf", pytest.param("all", marks=pytest.mark.exhaustive)])
def test_tensors_of_three_modes(format):
    x = sparse(4, 3, 5, density=0.5)
    x[1], x[:, 2, :] = 0, -1
    for each in CUBE_FORMATS if format == "all" else [format]:
        for name in NAMES:
            for axis in axes(3):
                assert_reduced(st.array(x, each), x, name, axis, keepdims=axis in (1, (0, 2)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "int16", "int8", "bool"])
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_types(dtype, index_dtype):
    x = matrix(dtype)
    a = st.array(st.array(x, "csr"), index_dtype=index_dtype)
    for name in NAMES[:-1]:
        for axis in (None, 0, 1):
            found, want = getattr(a, name)(axis), getattr(x, name)(axis)
            assert found.dtype == want.dtype
            np.testing.assert_allclose(found.to_dense(), want, rtol=1e-3 if dtype == "float16" else 1e-6)


def test_bfloat16():
    x = torch.tensor(matrix()).bfloat16()
    a = st.array(x, "csr")
    assert torch.equal(a.max(1).to_torch(), x.amax(1)) and torch.equal(a.min(0).to_torch(), x.amin(0))
    assert torch.equal(a.mean(1).to_torch(), x.mean(1))
    assert torch.equal(a.any(1).to_torch(), x.bool().any(1)) and torch.equal(a.all(0).to_torch(), x.bool().all(0))


@pytest.mark.parametrize("format", ["csr", "coo", "csc", "bsr(2)", "dense"])
def test_infinities_and_nan(format):
    x = np.zeros((6, 4))
    x[0, 1], x[1, 2], x[2, 0], x[3] = np.nan, np.inf, -np.inf, -np.inf
    x[4] = [np.nan, np.inf, -np.inf, 1]
    for name in ("max", "min", "any", "all"):
        for axis in (None, 0, 1):
            assert_reduced(st.array(x, format), x, name, axis)


def test_integers_at_the_ends_of_their_types():
    for dtype in ("int8", "int64"):
        ends = np.iinfo(dtype)
        x = np.array([[ends.min, ends.min], [ends.max, ends.max], [ends.min, 0], [ends.max, 0]], dtype)
        for name in ("max", "min"):
            assert_reduced(st.array(x, "csr"), x, name, 1)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1), (3, 1), (1, 3)])
@pytest.mark.parametrize("format", ["csr", "coo", "dense"])
def test_extents_of_none_and_of_one(shape, format):
    x = np.zeros(shape)
    for name in NAMES:
        for axis in (None, 0, 1):
            a = st.array(x, format)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing is NaN, with a word of NumPy
                try:
                    getattr(x, name)(axis)
                except ValueError:
                    with pytest.raises(
                        ValueError, match=rf"{name} over axis {axis} of the shape \({shape[0]}, {shape[1]}\)"
                    ):
                        getattr(a, name)(axis)
                    continue
                assert_reduced(a, x, name, axis)


def test_functions_of_numpy():
    a, x = st.array(matrix(), "csr"), matrix()
    for name in ("max", "min", "mean", "any", "all", "sum"):
        np.testing.assert_allclose(np.asarray(getattr(np, name)(a, axis=1)), getattr(x, name)(axis=1))


@pytest.mark.parametrize("name", ["max", "min", "mean"])
@pytest.mark.parametrize("format", ["csr", "csc", "coo", "dense"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_gradients(name, format, axis):
    x = torch.tensor(matrix().round(), requires_grad=True)  # with many that are equal
    at = np.indices(x.shape).reshape(2, -1) if format == "dense" else np.stack(np.nonzero(matrix().round()))
    values = x[tuple(torch.from_numpy(at))].detach().requires_grad_()
    a = st.array((at, values), format, shape=x.shape)
    found = getattr(a, name)(axis).to_torch()
    want = getattr(x, {"mean": "mean"}.get(name, f"a{name}"))(*(() if axis is None else (axis,)))
    weights = torch.tensor(dense(*found.shape)) if found.shape else torch.tensor(2.0)
    (mine,) = torch.autograd.grad((found * weights).sum(), values, create_graph=True)
    (theirs,) = torch.autograd.grad((want * weights).sum(), x)
    torch.testing.assert_close(mine, theirs[tuple(torch.from_numpy(at))])


def test_gradients_of_gradients():
    x = torch.tensor(dense(4, 3), requires_grad=True)
    at = np.indices((4, 3)).reshape(2, -1)

    def function(values):
        return st.array((at, values), "csr", shape=(4, 5)).max(1).to_torch() ** 2

    assert torch.autograd.gradcheck(function, (x.reshape(-1).detach().requires_grad_(),))
    assert torch.autograd.gradgradcheck(function, (x.reshape(-1).detach().requires_grad_(),))


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda a: a.max(2), ValueError, "axis 2 names modes of 2"),
        (lambda a: a.min((0, 0)), ValueError, r"axis \(0, 0\) names modes of 2, each once"),
        (lambda a: a.any("x"), TypeError, "axis 'x' is not an integer"),
        (lambda a: a.max(0, np.zeros(5)), TypeError, "the max of an array is in its own type and memory"),
        (lambda a: a.mean(0, "float32"), TypeError, r"take A.to\(dtype=...\).mean\(axis\)"),
    ],
)
def test_what_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make(st.array(matrix(), "csr"))
