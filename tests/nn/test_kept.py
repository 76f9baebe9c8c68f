"""Gradients of pruned weights that are kept as a dense matrix: those of the weights times their mask."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gnn_sparse_backend.nn.kept import bits_of, trained


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("way", ["jacrev", "jacfwd", "backward", "batched", "second"])
def test_every_way_to_differentiate(owned, way):
    torch.manual_seed(0)
    keep = torch.rand(3, 4) < 0.5
    weight, x = torch.randn(3, 4).double() * keep, torch.randn(2, 4).double()
    bits = bits_of(keep.flatten().nonzero()[:, 0], weight)

    def found(w):
        return F.linear(x, trained(w, bits, owned)).tanh()

    def expected(w):
        return F.linear(x, w * keep).tanh()

    results = [_derivative(way, f, weight) for f in (found, expected)]
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


def _derivative(way, f, weight):
    if way.startswith("jac"):
        return getattr(torch.func, way)(f)(weight)
    w = weight.clone().requires_grad_()
    y = f(w)
    if way == "batched":
        return torch.autograd.grad(y, w, torch.eye(6).double().view(6, 2, 3), is_grads_batched=True)[0]
    (gradient,) = torch.autograd.grad(y.square().sum(), w, create_graph=way == "second")
    return gradient if way == "backward" else torch.autograd.grad(gradient.square().sum(), w)[0]


def test_what_is_not_kept_has_no_gradient_whatever_it_would_be():
    keep = torch.tensor([[True, False], [False, True]])
    w = torch.eye(2).requires_grad_()
    bits = bits_of(keep.flatten().nonzero()[:, 0], w)
    trained(w, bits).backward(torch.tensor([[1.0, float("inf")], [float("nan"), 2.0]]))
    assert torch.equal(w.grad, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
