"""Linear maps that wait, in modes of PyTorch: gradients of gradients, checkpoints, no gradients, autocast."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gnn_sparse_backend as gsb

dgl = pytest.importorskip("dgl")
pytest.importorskip("torch_geometric")

from torch_geometric import nn as pyg  # noqa: E402

from tests.integrations.lazy.mapping import WIDENING, Layer, said  # noqa: E402
from tests.integrations.pyg import pair  # noqa: E402

pytestmark = pytest.mark.usefixtures("every_size")


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_gradients(always, weighted):
    layer, index = Layer((2, 3), "mean"), pair.edges("duplicates")
    weight = torch.rand(6, dtype=torch.float64, requires_grad=True)
    with gsb.enabled("pyg"):

        def function(x, matrix, w):
            given = (x, index, w) if weighted else (x, index)
            return torch.func.functional_call(layer, {"matrix": matrix}, given)

        given = pair.features(2, nodes=8), layer.matrix, weight
        assert torch.autograd.gradcheck(lambda x, m, w: layer(x, index, w), given) if weighted else True
        assert torch.autograd.gradgradcheck(
            lambda x, m, w: layer(x, index, w if weighted else None), given[:1] + given[1:], fast_mode=True
        )


class BelowAutograd(torch.autograd.Function):
    """A function that PyTorch does not announce."""

    @staticmethod
    def forward(ctx, x):
        return x * 2.0

    @staticmethod
    def backward(ctx, grad):
        return grad * 2.0


@pytest.mark.parametrize("of", [BelowAutograd.apply, torch.clone])
def test_below_autograd(always, of):
    layer = Layer((2, 3), of=of)
    pair.check_pair(layer, pair.features(2), pair.edges())
    with gsb.enabled("pyg"):
        assert torch.autograd.gradgradcheck(
            lambda x: layer(x, pair.edges("duplicates")), (pair.features(2, nodes=8),), fast_mode=True
        )


def test_messages_that_are_differentiated_below_autograd(always):
    class Below(Layer):
        def message(self, x_j, weight):
            return BelowAutograd.apply(x_j)

    layer = Below((2, 3))
    pair.check_pair(layer, pair.features(2), pair.edges())
    with gsb.enabled("pyg"):
        assert torch.autograd.gradgradcheck(
            lambda x: layer(x, pair.edges("duplicates")), (pair.features(2, nodes=8),), fast_mode=True
        )


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(asked, reentrant):
    layer, index = pyg.GCNConv(*WIDENING).double(), pair.edges()
    pair.check_pair(layer, pair.features(4), index)

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return checkpoint(self.layer, x, index, use_reentrant=reentrant).relu()

    x = pair.features(4)
    leaves = [x, *layer.parameters()]

    def step():
        for each in leaves:
            each.grad = None
        out = Checkpointed()(x)
        out.square().sum().backward()
        return [out.detach(), *(each.grad for each in leaves)]

    expected = step()
    with gsb.enabled("pyg"):
        found = step()
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_without_gradients(asked, without):
    layer, x, index = pyg.GCNConv(*WIDENING).double(), pair.features(4), pair.edges()
    with without():
        expected = layer(x, index)
        with gsb.enabled("pyg"):
            found = layer(x, index)
    torch.testing.assert_close(found, expected)
    assert asked == [(True, (False, False, False))] and type(found) is torch.Tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [lambda: pyg.GCNConv(*WIDENING), lambda: Layer(WIDENING, "mean").float()])
def test_under_autocast(asked, make, dtype):
    layer, index = make(), pair.edges("large")
    x = pair.features(4, dtype=torch.float32).to(dtype).detach().requires_grad_()
    expected, found = pair.in_autocast(layer, x, index)
    assert said(asked) == [True]
    for name, value in expected.items():
        assert found[name].dtype is value.dtype and type(found[name]) is torch.Tensor
        error = (found[name].double() - value.double()).norm() / value.double().norm()
        assert error < 1e-2, name


def test_autocast_of_the_map_alone(always):
    class Inside(Layer):
        def forward(self, x, edge_index):
            with torch.autocast("cpu", torch.bfloat16):
                mapped = x @ self.matrix
            return self.propagate(edge_index, x=mapped, weight=None)

    layer, index, x = Inside(WIDENING).float(), pair.edges("large"), pair.features(4, dtype=torch.float32)
    expected = pair.step(layer, x, index)
    with gsb.enabled("pyg"):
        found = pair.step(layer, x, index)
    for name, value in expected.items():
        assert found[name].dtype is value.dtype
        assert (found[name].double() - value.double()).norm() < 1e-2 * value.double().norm()
