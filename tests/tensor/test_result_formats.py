"""How results are stored if nobody says: as the operands are; and that what rows do not store costs nothing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import dense, sparse

A, B, K = sparse(6, 5), sparse(6, 5, seed=1), sparse(5, 7)
A[2], B[:2], K[1] = 0, 0, 0
T, U, Q, W = sparse(4, 3, 5), sparse(4, 3, 5, seed=1), sparse(3, 2, 4, 3), sparse(3, 2, 4, 3, seed=1)
OPERANDS = dict(A=A, B=B, K=K, T=T, U=U, Q=Q, W=W)
CASES = [
    ("R[i,j] = A[i,k] * K[k,j]", {"A": "dcsr", "K": "dcsr"}, "dcsr"),
    ("R[i,j] = A[i,k] * K[k,j]", {"A": "dcsr", "K": "csr"}, "dcsr"),
    ("R[i,j] = A[i,k] * K[k,j]", {"A": "csr", "K": "dcsr"}, "csr"),
    ("R[i,j] = A[k,i] * B[k,j]", {"A": "dcsr", "B": "dcsr"}, "dcsr"),
    ("R[i,j] = A[i,j] + B[i,j]", {"A": "dcsr", "B": "dcsr"}, "dcsr"),
    ("R[i,j] = A[i,j] - B[i,j]", {"A": "dcsr", "B": "csr"}, "csr"),
    ("R[i,j] = A[i,j] * B[i,j]", {"A": "dcsr", "B": "csr"}, "dcsr"),
    ("R[i,j] = relu(A[i,j] + B[i,j]) * A[i,j]", {"A": "dcsr", "B": "dcsr"}, "dcsr"),
    ("R[i,j,k] = T[i,j,k] + U[i,j,k]", {"T": "csf", "U": "csf"}, "csf"),
    ("R[i,j,l] = T[i,j,k] * K[k,l]", {"T": "csf", "K": "csr"}, "csf"),
    ("R[i,j,k,l] = Q[i,j,k,l] - W[i,j,k,l]", {"Q": "csf", "W": "csf"}, "csf"),
]


def wanted_of(expression: str) -> np.ndarray:
    """By NumPy, of the expressions above."""
    if "k] * K[" in expression or "A[k,i]" in expression:
        left, right = (T, K) if "T" in expression else (A.T, B) if "A[k,i]" in expression else (A, K)
        return left @ right
    if "relu" in expression:
        return np.maximum(A + B, 0) * A
    first, second = (OPERANDS[name] for name in expression if name in "ABTUQW")
    sign = next(sign for sign in "+-*" if sign in expression)
    return {"+": np.add, "-": np.subtract, "*": np.multiply}[sign](first, second)


def complete(found) -> None:
    """Coordinates ascend, and everything stored has elements under it."""
    first, *_ = found.structure.levels
    for level in found.structure.levels:
        if level.kind == "compressed":
            assert level.offsets[-1] == len(level.indices) == level.positions
            assert level is first or first.kind == "dense" or (np.diff(level.offsets) > 0).all()


@pytest.mark.parametrize("expression, formats, format", CASES)
def test_levels_of_the_result_are_those_of_the_operands(expression, formats, format):
    operands = {name: st.array(OPERANDS[name], each) for name, each in formats.items()}
    found = st.evaluate(expression, **operands)
    assert str(found.format) == format
    np.testing.assert_allclose(found.to_dense(), wanted_of(expression), rtol=1e-12, atol=1e-12)
    complete(found)


def test_nothing_is_stored_of_operands_without_elements():
    nothing = st.array(np.zeros((6, 5)), "dcsr")
    for found in (nothing @ st.array(K, "dcsr"), nothing * st.array(A, "dcsr")):
        assert str(found.format) == "dcsr" and found.nnz == 0
        complete(found)


def test_another_format_and_a_schedule():
    operands = {"A": st.array(A, "dcsr"), "K": st.array(K, "dcsr")}
    statement = st.statement("R[i,j] = A[i,k] * K[k,j]", **operands)
    for made in (statement, statement.split("i", "i0", "i1", 2), statement.parallelize("i", "threads")):
        found = st.compile(made)(**operands)
        assert str(found.format) == "dcsr"
        np.testing.assert_allclose(found.to_dense(), A @ K, rtol=1e-12, atol=1e-12)
    for format in ("csr", "csc", "coo"):
        found = st.evaluate("R[i,j] = A[i,k] * K[k,j]", format=format, **operands)
        assert str(found.format) == format
        np.testing.assert_allclose(found.to_dense(), A @ K, rtol=1e-12, atol=1e-12)


def test_gradients_where_rows_are_listed():
    a, b, k = (torch.tensor(x, requires_grad=True) for x in (A, B, K))
    found = (st.array(a, "dcsr") + st.array(b, "dcsr")) @ st.array(k, "dcsr")
    assert str(found.format) == "dcsr"
    weight = torch.from_numpy(dense(6, 7))
    (found.to_torch() * weight).sum().backward()
    want = torch.autograd.grad((((a + b) @ k) * weight).sum(), (a, b, k))
    for each, wanted in zip((a, b, k), want):
        np.testing.assert_allclose(each.grad, wanted * (each != 0), rtol=1e-12, atol=1e-12)


LARGE = """
import resource, numpy as np
from gnn_sparse_backend import tensor as st
ids = np.sort(np.random.default_rng(0).choice(10**8, 40, replace=False))
def large(x, at=ids):
    rows = np.nonzero(x)
    return st.array((np.stack([at[each] for each in rows]), x[rows]), "dcsr" if x.ndim == 2 else "csf",
                    shape=(10**8,) * x.ndim)
def sparse(*shape, seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) * (rng.random(shape) < 0.1)
x, y = sparse(40, 40, seed=1), sparse(40, 40, seed=2)
t, u = sparse(9, 9, 9, seed=1), sparse(9, 9, 9, seed=2)
a, b, c, d = map(large, (x, y, t, u))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for found, want in ((a @ b, x @ y), (a + b, x + y), (a * b, x * y), (a.T @ b, x.T @ y), (a @ a, x @ x), (c + d, t + u)):
    at, values = found.coordinates()
    whole = np.zeros(want.shape)
    whole[tuple(np.searchsorted(ids, each) for each in at)] = values
    assert np.isin(at, ids).all() and str(found.format) == ("dcsr" if want.ndim == 2 else "csf")
    np.testing.assert_allclose(whole, want, rtol=1e-12, atol=1e-12)
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024, "KiB"
"""


@pytest.mark.slow
def test_a_hundred_million_rows_take_no_memory():
    """In a process of its own, whose memory is looked at."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_rows_that_do_not_fit_are_refused_in_words():
    at = np.arange(4) * 10**6
    cubes = [st.array((np.stack([at + n] * 3), np.ones(4)), "csf", shape=(10**7,) * 3) for n in range(2)]
    cut = st.statement("R[i,j,k] = A[i,j,k] + B[i,j,k]", A=cubes[0], B=cubes[1]).split("i", "i0", "i1", 8)
    with pytest.raises(st.FormatError, match=r"has 100000000000000 rows, and counting .* takes 1490116 GiB"):
        st.compile(cut)(A=cubes[0], B=cubes[1])


@pytest.mark.parametrize("format", ["csr", "dcsr", "coo", "dense"])
def test_sums_that_keep_their_modes(format):
    a = st.array(torch.tensor(A, requires_grad=True), format)
    for axis in (0, 1, -1, (0, 1), None, ()):
        np.testing.assert_allclose(a.sum(axis, keepdims=True).to_dense(), A.sum(axis, keepdims=True), rtol=1e-12)
    (gradient,) = torch.autograd.grad(a.sum(1, keepdims=True).to_torch().sum(), a.values)
    assert (gradient == 1).all()


@pytest.mark.parametrize("shape", [(6, 1), (1, 5), (1, 1), (5,)])
def test_sparse_arrays_are_repeated_along_modes_of_one(shape):
    small = sparse(*shape, seed=3, density=0.7)
    for other in (st.array(A, "csr"), A, st.array(A, "dcsr")):
        x = st.array(small, "csr" if small.ndim > 1 else "coo")
        np.testing.assert_allclose((x * other).to_dense(), small * A, rtol=1e-12)
        np.testing.assert_allclose((x + other).to_dense(), small + A, rtol=1e-12)
    x, y = torch.tensor(small, requires_grad=True), torch.tensor(A, requires_grad=True)
    (st.array(x, "csr" if x.ndim > 1 else "coo") * st.array(y, "csr")).to_torch().sum().backward()
    want = torch.autograd.grad((x * y).sum(), (x, y))
    for each, wanted in zip((x, y), want):
        np.testing.assert_allclose(each.grad, wanted * (each != 0), rtol=1e-12)
