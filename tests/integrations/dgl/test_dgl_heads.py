"""The scores of nodes in attention layers, as one operator: equal to DGL's, whoever looks at the vectors."""
import dgl
import dgl.nn.pytorch as dglnn
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.dgl import heads
from gnn_sparse_backend.ops.row_dots import BLOCK, row_dots


@pytest.mark.parametrize("rows", [1, 7, BLOCK, 2 * BLOCK + 5])
@pytest.mark.parametrize("heads, width", [(1, 1), (1, 64), (3, 5), (8, 8)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_row_dots(rows, heads, width, dtype):
    torch.manual_seed(0)
    x, vector = torch.randn(rows, heads, width, dtype=dtype), torch.randn(heads, width, dtype=dtype)
    cotangent = torch.randn(rows, heads, dtype=dtype)
    wide = [a.double().requires_grad_() for a in (x, vector)]
    expected = (wide[0] * wide[1]).sum(-1)
    gradients = torch.autograd.grad(expected, wide, cotangent.double())
    own = [a.clone().requires_grad_() for a in (x, vector)]
    actual = row_dots(*own)
    assert actual.dtype == dtype and actual.is_contiguous()
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}[dtype]
    for one, other in zip((actual, *torch.autograd.grad(actual, own, cotangent)), (expected, *gradients)):
        scale = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one.double() / scale, other / scale, rtol=tolerance, atol=tolerance)


def test_gradcheck():
    torch.manual_seed(0)
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    vector = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(row_dots, (x, vector))
    assert torch.autograd.gradgradcheck(row_dots, (x, vector))


def test_what_is_not_finite_stays_with_its_head():
    x = torch.ones(4, 2, 3)
    x[1, 0, 0], x[2, 1, 1] = float("inf"), float("nan")
    actual = row_dots(x, torch.zeros(2, 3))
    torch.testing.assert_close(actual, (x * torch.zeros(1, 2, 3)).sum(-1), equal_nan=True)


@pytest.fixture
def used(monkeypatch):
    """How often the operator ran."""
    calls = []
    monkeypatch.setattr(heads, "row_dots", lambda *operands: calls.append(1) or row_dots(*operands))
    return calls


def graph():
    torch.manual_seed(0)
    return dgl.add_self_loop(dgl.graph((torch.randint(0, 9, (30,)), torch.randint(0, 9, (30,))), num_nodes=9))


@pytest.mark.parametrize("layer, inputs", [
    (lambda: dglnn.GATConv(6, 4, 2), 1), (lambda: dglnn.GATConv(6, 4, 1, residual=True, activation=torch.tanh), 1),
    (lambda: dglnn.GATConv((6, 5), 4, 3), 2), (lambda: dglnn.EdgeGATConv(6, 3, 4, 2), 1)], ids=["gat", "residual", "pair", "edges"])
def test_layers_are_the_same(used, layer, inputs):
    torch.manual_seed(1)
    layer = layer().double()
    x = [torch.randn(9, width, dtype=torch.float64, requires_grad=True) for width in (6, 5)[:inputs]]
    features = [tuple(x)] if inputs == 2 else x
    if isinstance(layer, dglnn.EdgeGATConv):
        features = [*features, torch.randn(39, 3, dtype=torch.float64)]

    def run():
        layer.zero_grad()
        out = layer(graph(), *features)
        return [out, *torch.autograd.grad(out.square().sum(), [*layer.parameters(), *x], allow_unused=True)]

    expected = run()
    with gsb.enabled("dgl"):
        actual = run()
    assert len(used) == 2
    for one, other in zip(actual, expected):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_other_uses_of_the_vectors(used):
    """A layer of a user's own that does something else with them."""
    class Mine(dglnn.GATConv):
        def forward(self, graph, feat):
            return super().forward(graph, feat) + self.attn_l.sum() + (self.attn_r * 2).sum()

    layer = Mine(6, 4, 2)
    x = torch.randn(9, 6)
    expected = layer(graph(), x)
    with gsb.enabled("dgl"):
        torch.testing.assert_close(layer(graph(), x), expected)
        vector = heads._Vector(layer.attn_l)
        features = torch.randn(9, 2, 4)
        product = features * vector
        assert torch.equal(vector * 2, layer.attn_l * 2) and torch.equal(2 - vector, 2 - layer.attn_l)
        assert torch.equal(product[1:], (features * layer.attn_l)[1:]) and len(product) == 9
        assert torch.equal(torch.tanh(vector), torch.tanh(layer.attn_l)) and vector.shape == layer.attn_l.shape
        assert torch.equal(product + 1, features * layer.attn_l + 1) and torch.equal(product.sum(1), (features * layer.attn_l).sum(1))
    assert dglnn.GATConv.forward.__qualname__ == "GATConv.forward" and not hasattr(dglnn.GATConv.forward, "__wrapped__")
