"""Layers of DGL under torch.compile: they run between traced programs, on the kernels of eager ones."""

from __future__ import annotations

import dgl
import pytest
import torch
from dgl import function as fn
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.random.draws import torch_draws_so


class Network(nn.Module):
    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer, self.dropout = layer, nn.Dropout(0.5)

    def forward(self, graph, x):
        return self.dropout(torch.relu(self.layer(graph, x)))


class Written(nn.Module):
    """A message that is a function of the user's."""

    def forward(self, graph, x):
        with graph.local_scope():
            graph.ndata["h"] = x
            graph.update_all(lambda edges: {"m": edges.src["h"] * edges.dst["h"].sigmoid()}, fn.sum("m", "o"))
            return graph.ndata["o"]


LAYERS = {
    "sage": lambda: dgl.nn.SAGEConv(8, 8, "mean", feat_drop=0.25),
    "gat": lambda: dgl.nn.GATConv(8, 4, 2, feat_drop=0.25, attn_drop=0.25, allow_zero_in_degree=True),
    "written": Written,
}


@pytest.mark.parametrize("name", LAYERS)
def test_what_runs_is_what_runs_in_eager_programs(name):
    graph = dgl.rand_graph(600, 3000)
    torch.manual_seed(0)
    network, x = Network(LAYERS[name]()), torch.randn(600, 8)
    outcomes = []
    with gsb.enabled("dgl"):
        for run in (network, torch.compile(network, backend="eager")):
            given = x.clone().requires_grad_()
            torch.manual_seed(1)
            gsb.integrations.reset_status()
            y = run(graph, given)
            (gradient,) = torch.autograd.grad(y.square().sum(), given)
            outcomes.append((y, gradient, gsb.status().to_dict()["calls"]["dgl"]))
    torch._dynamo.reset()
    (y, gradient, counted), (traced_y, traced_gradient, traced_counted) = outcomes
    assert traced_counted == counted
    torch.testing.assert_close(traced_y, y)
    torch.testing.assert_close(traced_gradient, gradient)


@pytest.mark.slow
@pytest.mark.skipif(not torch_draws_so(), reason="PyTorch draws by MKL here")
def test_dropout_by_inductor_draws_the_same_bits():
    layers = [nn.Dropout(p) for p in (0.5, 0.25, 0.0)]
    x = torch.randn(600, 128)
    with gsb.enabled("dgl"):
        for layer in layers:
            torch.manual_seed(2)
            expected = layer(x)
            torch.manual_seed(2)
            assert torch.equal(torch.compile(layer)(x), expected)
    torch._dynamo.reset()
