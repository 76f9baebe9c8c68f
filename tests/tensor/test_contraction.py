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
