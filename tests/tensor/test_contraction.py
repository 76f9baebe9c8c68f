"""Products of several operands, two at a time where that takes fewer products: what one kernel gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from gnn_sparse_backend import tensor as st
from gnn_sparse_backend.tensor.expressions import contraction
from gnn_sparse_backend.tensor.expressions.contraction import Factor, path_of

SIZE = 60


@pytest.fixture
def steps(monkeypatch):
    """The orders that were taken."""
    found = []

    def recording(*given, original=path_of):
        found.append(original(*given))
        return found[-1]

    monkeypatch.setattr("gnn_sparse_backend.tensor.evaluation.path_of", recording)
    monkeypatch.setattr(contraction, "LEAST", 0.0)
    return found


def drawn(letters: str, kind: str, seed: int):
    generator = np.random.default_rng(seed)
    x = generator.random((SIZE,) * len(letters))
    if kind == "dense":
        return x, x
    x = x * (generator.random(x.shape) < 0.2)
    return x, st.array(x, "csr" if len(letters) == 2 else "csf")


@pytest.mark.parametrize("subscripts", ["ij,jk,kl->il", "ij,jk,k->i", "ij,jk,kl,l->i", "ij,jk,kl,lm,m->i"])
def test_chains(subscripts, steps):
    inputs = subscripts.split("->")[0].split(",")
    for kinds in itertools.product(("csr", "dense"), repeat=len(inputs)):
        made = [drawn(letters, kind, seed) for seed, (letters, kind) in enumerate(zip(inputs, kinds))]
        found = st.einsum(subscripts, *(given for _, given in made), format="dense")
        np.testing.assert_allclose(found.to_dense(), np.einsum(subscripts, *(x for x, _ in made), optimize=True))
    assert any(path is not None for path in steps)


def thin(letters: str, format: str, seed: int, empty: bool = False):
    """A sparse matrix with empty rows and columns, whose values sum exactly."""
    generator = np.random.default_rng(seed)
    x = generator.integers(1, 4, (SIZE, SIZE)) * (generator.random((SIZE, SIZE)) < 0.1) * 1.0
    x[::3], x[:, 1::4] = 0, 0
    return st.array(x * (not empty), format)


@pytest.mark.parametrize("formats", ["csr csr csr", "dcsr csr dcsr", "dcsr dcsr dcsr", "csc csr csc", "coo csr ell"])
@pytest.mark.parametrize("format", [None, "csr", "dcsr", "csc", "coo"])
@pytest.mark.parametrize("subscripts", ["ij,jk,kl->il", "kl,ij,jk->li", "ij,kj,kl->il"])
def test_chains_with_sparse_results(subscripts, format, formats, steps):
    """They store what one kernel stores, in its format."""
    given = [thin("ij", each, seed) for seed, each in enumerate(formats.split())]
    found = st.einsum(subscripts, *given, format=format)
    assert len(steps[0]) == 2
    one = st.einsum(subscripts, *given, format=format, optimize=False)
    assert found.format == one.format and not found.format.is_dense
    for a, b in zip(found.coordinates(), one.coordinates()):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(found.to_dense(), np.einsum(subscripts, *(x.to_dense() for x in given)))


def test_longer_chains_and_empty_factors_with_sparse_results(steps):
    given = [thin("ij", "csr", seed) for seed in range(5)]
    want = np.linalg.multi_dot([x.to_dense() for x in given])
    found = st.einsum("ij,jk,kl,lm,mn->in", *given)
    assert str(found.format) == "csr" and len(steps[0]) == 4
    np.testing.assert_array_equal(found.to_dense(), want)
    given[2] = thin("ij", "csr", 9, empty=True)
    assert st.einsum("ij,jk,kl,lm,mn->in", *given).nnz == 0
    vector = st.array((([3, 7],), [1.0, 2.0]), "csf", shape=(SIZE,))
    found = st.einsum("ij,jk,k->i", *given[:2], vector)
    assert found.format == st.Format(("compressed",))
    np.testing.assert_array_equal(found.to_dense(), given[0].to_dense() @ given[1].to_dense() @ vector.to_dense())


def test_sparse_results_that_one_kernel_is_for(steps):
    """A sampled product, a dense factor and two factors of the same indices."""
    mask, a, b = (thin("ij", "csr", seed) for seed in range(3))
    for subscripts, given in (
        ("ij,jk,ik->ik", (a, b, mask)),
        ("ij,jk,kl->il", (a, b, np.ones((SIZE, 4)))),
        ("ij,ij,jk->ik", (a, a, b)),
    ):
        found = st.einsum(subscripts, *given, format="csr")
        one = st.einsum(subscripts, *given, format="csr", optimize=False)
        assert found.format == one.format and np.array_equal(found.coordinates()[0], one.coordinates()[0])
        np.testing.assert_allclose(found.values, one.values)


def test_gradients_go_through_steps_with_sparse_results(steps):
    given = [thin("ij", "csr", seed) for seed in range(3)]
    leaves = [torch.from_numpy(x.values).requires_grad_() for x in given]

    def run(optimize):
        found = st.einsum("ij,jk,kl->il", *(x.with_values(v) for x, v in zip(given, leaves)), optimize=optimize)
        return torch.autograd.grad(found.values.square().sum(), leaves)

    for a, b in zip(run(True), run(False)):
        assert torch.equal(a, b)
    assert steps[0] is not None


def test_gradients_go_through_the_steps(steps):
    a, b, x = (np.random.default_rng(n).random(shape).round() for n, shape in enumerate([(9, 8), (8, 7), (7,)]))
    at = [np.nonzero(m) for m in (a, b)]
    values = [torch.from_numpy(m[w] + 0.5).requires_grad_() for m, w in zip((a, b), at)]
    vector = torch.from_numpy(x).requires_grad_()

    def run(first, second, vector):
        one = st.array((np.stack(at[0]), first), "csr", shape=a.shape)
        other = st.array((np.stack(at[1]), second), "csr", shape=b.shape)
        return st.einsum("ij,jk,k->i", one, other, vector, format="dense").to_torch()

    assert torch.autograd.gradcheck(run, (*values, vector))


def test_results_and_numbers_that_one_kernel_is_for(steps):
    """Results with coordinates of their own, and infinities, of which what is not stored takes nothing."""
    (a, one), (b, other) = drawn("ij", "csr", 0), drawn("jk", "csr", 1)
    found = st.einsum("ij,jk,k->i", one, other, np.ones(SIZE))
    assert not found.format.is_dense
    np.testing.assert_allclose(found.to_dense(), a @ b @ np.ones(SIZE))
    x = np.ones((SIZE, 3))
    x[4, 1] = np.inf
    for optimize in (True, False):
        found = st.einsum("ij,jk,kl->il", one, other, x, optimize=optimize).to_dense()
        assert np.isinf(found[:, 1]).any() and not np.isnan(found).any()


def test_orders_are_compared_by_what_they_cost():
    sizes = dict.fromkeys("ijk", 1_000) | {"l": 8}
    a, b, x = Factor(frozenset("ij"), 5e4), Factor(frozenset("jk"), 5e4), Factor(frozenset("kl"), 8e3)
    assert path_of((a, b, x), frozenset("il"), sizes) == ((1, 2), (0, 1))
    assert path_of((a, b), frozenset("ik"), sizes) is None
    mask = Factor(frozenset("ik"), 1e3)  # of a sampled product one kernel takes the fewest
    dense = Factor(frozenset("ij"), 1e6), Factor(frozenset("jk"), 1e6)
    assert path_of((mask, *dense), frozenset("ik"), sizes) is None
