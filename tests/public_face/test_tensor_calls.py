"""Calls of the tensor algebra with one argument spoiled: right all the same, or refused in our own words."""

from __future__ import annotations

import io
import linecache
from pathlib import Path

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import tensor as st
from tests.tensor.scheduling.checks import Stage

HOME = str(Path(gsb.__file__).parent)
A, X = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]]), np.array([1.0, 2.0, 3.0])
SPOILED = (None, 3, -1, 0, 2.5, True, "", "i", "j", "q", "i j", "9", "é", "A[i,j]", [], ("i",), {}, b"i", np.arange(2))
COMMANDS = {
    "split": ("i", "a", "b", 2),
    "divide": ("j", "a", "b", 2),
    "fuse": ("i", "j", "f"),
    "pos": ("j", "p", "A[i,j]"),
    "coord": ("p", "c"),
    "reorder": ("i", "j"),
    "parallelize": ("i", "threads", "none"),
    "unroll": ("u",),
    "bound": ("i", "b", 2, "exact"),
    "precompute": ("A[i,j] * x[j]", "j", "k", "w"),
}
FUNCTIONS = {
    "array": (st.array, (A, "csr"), {}),
    "array of coordinates": (
        st.array,
        (([[0, 1], [1, 2]], [1.0, 2.0]),),
        {"shape": (2, 3), "dtype": "float32", "index_dtype": "int64", "duplicates": "refuse"},
    ),
    "to": (st.array(A, "csr").to, ("coo",), {"dtype": "float32", "index_dtype": "int64"}),
    "to of PyTorch": (st.array(torch.tensor(A), "csr").to, ("coo",), {"dtype": "float32"}),
    "permute": (st.array(A, "csr").permute, (1, 0), {}),
    "sum": (st.array(A, "csr").sum, (0,), {}),
    "max": (st.array(A, "csr").max, (0,), {}),
    "where": (st.where, (st.array(A, "csr") > 1, A, st.array(A, "csr")), {}),
    "to_torch": (st.array(A, "csr").to_torch, ("coo",), {}),
    "to_scipy": (st.array(A, "csr").to_scipy, ("coo",), {}),
    "Format": (st.Format, (("dense", "compressed"), (1, 0)), {"block": None}),
    "bsr": (st.bsr, ((2, 3),), {}),
    "coo": (st.coo, (2,), {}),
    "index": (lambda key: st.array(A, "csr")[key], (0,), {}),
    "index of two modes": (lambda *key: st.array(A, "csr")[key], (0, 1), {}),
    "slice": (lambda *key: st.array(A, "csr")[slice(*key)], (0, 2, 1), {}),
    "reshape": (st.array(A, "csr").reshape, (3, -1), {}),
    "dot": (st.array(A, "csr").dot, (X,), {}),
    "stack": (st.stack, ([A, A], 1), {}),
    "concatenate": (st.concatenate, ([A, A], 1), {}),
    "matmul": (st.matmul, (st.array(A, "csr"), X), {}),
    "tensordot": (st.tensordot, (st.array(A, "csr"), X, (1, 0)), {}),
    "save_npz": (lambda x: st.save_npz(io.BytesIO(), x), (A,), {}),
    "save_mtx": (lambda x: st.save_mtx(io.BytesIO(), x), (A,), {}),
    "evaluate": (st.evaluate, ("y[i] = A[i,j] * x[j]",), {"A": A, "x": X, "format": None, "semiring": "min_plus"}),
    "einsum": (st.einsum, ("ij,j->i", A, X), {"format": None, "semiring": "max_times"}),
    "einsum of lists": (st.einsum, (A, [0, 1], X, [1], [0]), {"format": None}),
    "einsum with an ellipsis": (st.einsum, ("...j,j->...", A, X), {"format": None}),
    "compile": (st.compile, ("y[i] = A[i,j] * x[j]",), {"A": A, "x": X, "format": None}),
    "statement": (st.statement, ("y[i] = A[i,j] * x[j]",), {"A": A, "x": X, "format": None}),
}


def raised_by_us(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    file = trace.tb_frame.f_code.co_filename
    return file.startswith(HOME) and linecache.getline(file, trace.tb_lineno).lstrip().startswith("raise")


def tried(function, *given, **named):
    """What a call gives; None if it is refused, which has to be in our own words."""
    try:
        return function(*given, **named)
    except (TypeError, ValueError, IndexError, NotImplementedError) as error:
        assert raised_by_us(error), f"{type(error).__name__}: {error}"
        assert str(error)
        return None


@pytest.fixture(scope="module")
def statement():
    return st.statement("y[i] = A[i,j] * x[j]", A=st.array(A, "csr"), x=X)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_with_one_argument_spoiled(statement, name):
    if name == "coord":
        statement = statement.pos("j", "p", "A[i,j]")
    if name == "unroll":
        statement = statement.split("i", "t", "u", 2)
    right = COMMANDS[name]
    for at in range(len(right)):
        for wrong in SPOILED:
            given = (*right[:at], wrong, *right[at + 1 :])
            made = tried(getattr(statement, name), *given)
            if made is None:
                continue
            kernel = made._of(Stage(made))
            found = tried(kernel.run, {"A": st.array(A, "csr"), "x": st.array(X)})
            if found is None:
                assert name == "bound"  # it is not true of these
            else:
                np.testing.assert_array_equal(found.to_dense(), A @ X, err_msg=f"{name}{given}")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_with_one_argument_spoiled(name):
    function, right, named = FUNCTIONS[name]
    function(*right, **named)
    for wrong in SPOILED:
        for at in range(len(right)):
            tried(function, *right[:at], wrong, *right[at + 1 :], **named)
        for key in named:
            tried(function, *right, **{**named, key: wrong})
