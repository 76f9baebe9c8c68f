"""Kernels that are pickled and copied, for this process and for others: what comes out computes the same."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import dense, sparse

A, B, X = sparse(9, 8), sparse(8, 7, seed=2), dense(8, 3)
SPMV, SPMM, SPGEMM = "y[i] = A[i,j] * x[j]", "C[i,k] = A[i,j] * X[j,k]", "C[i,k] = A[i,j] * B[j,k]"


def csr(x, format: str = "csr", **types) -> st.Array:
    return st.array(x, format).to(**types)


def scheduled(expression: str, *commands: tuple, **operands) -> st.Statement:
    found = st.statement(expression, **operands)
    for name, *given in commands:
        found = getattr(found, name)(*given)
    return found


CASES = {
    # (what is compiled, its operands, what comes out)
    "an ordinary result": (SPMM, dict(A=csr(A), X=X), A @ X),
    "of an operand's structure": ("S[i,j] = 2 * A[i,j] * x[j]", dict(A=csr(A, "bsr(2)"), x=X[:, 0]), 2 * A * X[:, 0]),
    "counted and filled": (SPGEMM, dict(A=csr(A), B=csr(B)), A @ B),
    "of listed rows": (SPGEMM, dict(A=csr(A, "dcsr"), B=csr(B, "dcsr")), A @ B),
    "written once": ("C[i,j] = A[i,j] + B[i,j]", dict(A=csr(A), B=csr(sparse(9, 8, seed=5))), A + sparse(9, 8, seed=5)),
    "of converted operands": (SPGEMM, dict(A=csr(A, "coo"), B=csr(B, "csc", index_dtype="int64")), A @ B),
    "of PyTorch's tensors": (SPMV, dict(A=csr(torch.tensor(A)), x=torch.tensor(X[:, 0])), A @ X[:, 0]),
    "scheduled": (
        scheduled(
            SPMV,
            *[("fuse", "i", "j", "f"), ("pos", "f", "p", "A[i,j]"), ("split", "p", "p0", "p1", 4)],
            ("parallelize", "p0", "threads", "atomics"),
            A=csr(A),
            x=X[:, 0],
        ),
        dict(A=csr(A), x=X[:, 0]),
        A @ X[:, 0],
    ),
    "scheduled, with a workspace": (
        scheduled(SPGEMM, ("precompute", "A[i,j] * B[j,k]", "k", "k0", "w"), A=csr(A), B=csr(B)),
        dict(A=csr(A), B=csr(B)),
        A @ B,
    ),
}


def compiled(name: str) -> st.Kernel:
    what, operands, _ = CASES[name]
    return st.compile(what) if isinstance(what, st.Statement) else st.compile(what, **operands)


@pytest.mark.parametrize("name", CASES)
def test_copies_compute_the_same(name):
    kernel, (what, operands, expected) = compiled(name), CASES[name]
    found = kernel(**operands)
    np.testing.assert_allclose(found.to_dense(), expected)
    for other in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel), copy.copy(kernel)):
        assert type(other) is type(kernel) and repr(other) == repr(kernel)
        assert other.stages("program", "plan") == kernel.stages("program", "plan")
        if not isinstance(what, st.Statement):  # nothing is compiled again
            assert other.plan is kernel.plan
        again = other(**operands)
        assert again.format == found.format and np.array_equal(again.values, found.values)


def test_statements_are_copied_with_their_commands():
    statement = CASES["scheduled"][0]
    for other in (pickle.loads(pickle.dumps(statement)), copy.deepcopy(statement)):
        assert str(other) == str(statement) and other.commands == statement.commands
        assert str(other.unroll("p1")) == str(statement.unroll("p1"))


def test_what_copies_refuse():
    kernel = pickle.loads(pickle.dumps(compiled("an ordinary result")))
    with pytest.raises(ValueError, match="index 'k' has 2 values, and the kernel was compiled for 3"):
        kernel(A=csr(A), X=X[:, :2])


@pytest.mark.slow
def test_in_a_process_of_their_own():
    names = [name for name in CASES if "PyTorch" not in name]  # which takes seconds to import
    kernels = {name: (compiled(name), CASES[name][1]) for name in names}
    script = (
        "import pickle, sys; given = pickle.load(sys.stdin.buffer); "
        "found = {name: kernel(**operands).to_dense() for name, (kernel, operands) in given.items()}; "
        "sys.stdout.buffer.write(pickle.dumps(found))"
    )
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(kernels), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    for name, found in pickle.loads(done.stdout).items():
        np.testing.assert_allclose(found, CASES[name][2])
