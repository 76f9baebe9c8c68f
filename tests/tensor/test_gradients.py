"""Gradients in the values of operands, against those of PyTorch's dense einsum and against differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnn_sparse_backend import tensor as st
from tests.tensor.random_tensors import MATRIX_FORMATS, dense, sparse

FORMATS = [format for format in MATRIX_FORMATS if not isinstance(format, tuple)]


def assert_gradients(expression, subscripts, operands, formats, format=None):
    """Of the operands, and at the elements that are stored."""
    ours = [torch.tensor(x, requires_grad=True) for x in operands]
    theirs = [torch.tensor(x, requires_grad=True) for x in operands]
    names = "ABCD"[: len(ours)]
    given = {name: x if form is None else st.array(x, form) for name, x, form in zip(names, ours, formats)}
    result = st.evaluate(expression, format=format, **given).to_torch()
    want = torch.einsum(subscripts, *theirs)
    weight = torch.tensor(dense(*want.shape, seed=5))
    found = torch.autograd.grad((result * weight).sum(), ours)
    wanted = torch.autograd.grad((want * weight).sum(), theirs)
    for x, form, mine, other in zip(operands, formats, found, wanted):
        other = other if form is None else other * torch.tensor(x != 0)
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("format", FORMATS)
def test_products_of_a_matrix(format):
    a, x, b = sparse(6, 7), dense(7), dense(7, 4)
    u, v = dense(6, 3), dense(7, 3, seed=2)
    assert_gradients("y[i] = A[i,j] * B[j]", "ij,j->i", (a, x), (format, None))
    assert_gradients("y[k,i] = A[i,j] * B[j,k]", "ij,jk->ki", (a, b), (format, None))
    assert_gradients("y[j] = A[i,j]", "ij->j", (a,), (format,))
    assert_gradients("y[i,j] = A[i,j] * B[i,k] * C[j,k]", "ij,ik,jk->ij", (a, u, v), (format, None, None))
    assert_gradients("y[j,i] = A[i,j] * B[i,k] * C[j,k]", "ij,ik,jk->ji", (a, u, v), (format, None, None))


@pytest.mark.parametrize("format", ["csf", "coo", ("dense", "compressed", "compressed")], ids=str)
def test_products_of_a_tensor(format):
    t, c, d = sparse(3, 4, 5), dense(4, 2), dense(5, 2)
    assert_gradients("y[i,j] = A[i,k,l] * B[k,j] * C[l,j]", "ikl,kj,lj->ij", (t, c, d), (format, None, None))
    assert_gradients("y[i,j] = A[i,j,k] * B[k]", "ijk,k->ij", (t, dense(5)), (format, None), format="dcsr")


def test_sums_squares_and_operators():
    x = torch.tensor(sparse(4, 5), requires_grad=True)
    b = torch.tensor(dense(5), requires_grad=True)
    a = st.array(x, "csr")
    loss = ((a * a * b + 2 * a).to_torch() ** 2).sum() + st.evaluate("s = b[j] * b[j] + x[i]", b=b, x=b).to_torch()
    want = ((x * x * b + 2 * x) ** 2).sum() + (b * b).sum() + b.sum()
    assert torch.isclose(loss, want)
    for mine, other, mask in zip(torch.autograd.grad(loss, (x, b)), torch.autograd.grad(want, (x, b)), (x != 0, True)):
        torch.testing.assert_close(mine, other * mask)


def test_differences_agree():
    rows, columns = [0, 1, 1, 3], [2, 0, 1, 1]
    v, b = torch.tensor(dense(4), requires_grad=True), torch.tensor(dense(3, 2), requires_grad=True)

    def product(v, b):
        return (st.array(((rows, columns), v), "csr", shape=(4, 3)) @ b).to_torch()

    assert torch.autograd.gradcheck(product, (v, b))


def test_what_has_no_gradient_is_refused():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match=r"x\[i,i\] has no gradient"):
        st.evaluate("s = x[i,i]", x=torch.ones(3, 3, requires_grad=True))
    with pytest.raises(NotImplementedError, match=r"x\[i,i\] has no gradient"):
        st.evaluate("s = exp(x[i,i])", x=torch.ones(3, 3, requires_grad=True))
    with torch.no_grad():
        assert not st.evaluate("y[i] = exp(x[i])", x=x).to_torch().requires_grad


AT = np.nonzero(sparse(4, 5, density=0.5))
FUNCTIONS = {
    "y[i,j] = A[i,j] * B[i,j]": lambda a, b: a * b,
    "y[i] = A[i,j] * A[i,j] * B[i,j]": lambda a, b: (a * a * b).sum(1),
    "y[i,j] = relu(A[i,j]) * tanh(B[i,j])": lambda a, b: a.relu() * b.tanh(),
    "y[j] = A[i,j] * exp(B[i,j])": lambda a, b: (a * b.exp()).sum(0),
    "y[i,j] = A[i,j] / B[i,j] + 2 * A[i,j]": lambda a, b: a / b + 2 * a,
    "y[i,j] = A[i,j] * sigmoid(B[i,j] * B[i,j] - B[i,j])": lambda a, b: a * (b * b - b).sigmoid(),
}


@pytest.mark.parametrize("expression", FUNCTIONS)
def test_functions_divisors_and_second_derivatives(expression):
    values = torch.tensor(sparse(4, 5, density=0.5)[AT], requires_grad=True)
    b = torch.tensor(dense(4, 5, seed=3) + 3, requires_grad=True)

    def run(values, b):
        a = st.array((np.stack(AT), values), "csr", shape=(4, 5))
        return st.evaluate(expression, format="dense", A=a, B=b).to_torch()

    want = FUNCTIONS[expression](
        torch.zeros(4, 5, dtype=torch.double).index_put(tuple(map(torch.tensor, AT)), values), b
    )
    torch.testing.assert_close(run(values, b), want, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(run, (values, b))
    assert torch.autograd.gradgradcheck(run, (values, b), fast_mode=True)


@pytest.mark.parametrize(
    "expression, format",
    [
        ("R[i,j] = A[i,j] * B[i,j]", None),
        ("R[i,j] = A[i,j] - 2 * B[i,j]", None),
        ("R[i,j] = A[i,j] * B[i,j]", "dense"),
        ("R[i,k] = A[i,j] * B[k,j]", None),
        ("r = A[i,j] * B[i,j]", None),
    ],
)
def test_several_sparse_operands(expression, format):
    drawn = [sparse(4, 5, seed=seed) for seed in (1, 2)]
    at = [np.nonzero(x) for x in drawn]
    values = [torch.from_numpy(x[where]).requires_grad_() for x, where in zip(drawn, at)]

    def run(*given):
        a, b = (st.array((np.stack(where), x), "csr", shape=(4, 5)) for where, x in zip(at, given))
        return st.evaluate(expression, format=format, A=a, B=b).to_torch()

    assert torch.autograd.gradcheck(run, values)


@pytest.mark.parametrize("layout", ["coo", "repeated", "csr", "csc", "bsr"])
def test_sparse_tensors_of_pytorch_keep_their_gradients(layout):
    a, x = torch.tensor(sparse(4, 6)), torch.tensor(dense(6))
    if layout == "repeated":
        at = a.nonzero().T
        given = torch.sparse_coo_tensor(torch.cat([at, at], 1), a[tuple(at)].repeat(2) / 2, (4, 6))
    else:
        given = a.to_sparse_bsr((2, 3)) if layout == "bsr" else getattr(a, f"to_sparse_{layout}")()
    given.requires_grad_()
    weight = torch.tensor(dense(4, seed=5))
    result = (st.array(given) @ x).to_torch()
    torch.testing.assert_close(result, a @ x)
    (found,) = torch.autograd.grad((result * weight).sum(), given)
    there = a != 0
    assert found.layout is given.layout
    torch.testing.assert_close(found.to_dense() * there, torch.outer(weight, x) * there)  # blocks have zeros too


@pytest.mark.parametrize("format", ["coo", "csr", "bsr(2)", "dia", "ell"])
def test_elements_that_happen_to_be_zero_have_gradients(format):
    b = np.array([[1.0, 0], [0, 2]])
    assert_gradients("y[i,k] = A[i,j] * B[j,k]", "ij,jk->ik", (np.eye(2), b), (None, None), format)
    assert_gradients("y[i] = A[i,j] * B[j]", "ij,j->i", (np.eye(2), b[0]), (None, None), ("compressed",))


def test_gradients_of_tensors_with_more_places_than_integers():
    """Four extents of a million: the elements of two, one of which both have, each once and in no order."""
    extents, rng = (10**6,) * 4, np.random.default_rng(3)
    at, other = rng.integers(0, 10**6, (2, 4, 5))
    other[:, 3] = at[:, 1]
    a, b = (torch.from_numpy(rng.standard_normal(5)).requires_grad_() for _ in range(2))
    for format in ("csf", "coo"):
        A, B = (st.array((tuple(c), v), format, shape=extents) for c, v in ((at, a), (other, b)))
        found = st.evaluate("s = A[i,j,k,l] * B[i,j,k,l]", A=A, B=B).to_torch()
        wanted = a[1] * b[3]
        assert torch.equal(found.reshape(()), wanted)
        for mine, theirs in zip(*(torch.autograd.grad(x, (a, b)) for x in (found.sum(), wanted))):
            assert torch.equal(mine, theirs)
        assert (A + B).nnz == 9 and (A * B).nnz == 1
