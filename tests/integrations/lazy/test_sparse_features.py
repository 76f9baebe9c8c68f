"""Layers map features that stay as they are, and are mostly zeros, by their non-zeros; all others as they did."""

from __future__ import annotations

import dgl
import pytest
import torch
from dgl.nn.pytorch import GraphConv
from torch_geometric.nn import GCNConv

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message.sparse_rows import FOUND_AT

NODES = 1 << 10


def words(share: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(NODES, NODES, generator=generator)
    return torch.where(torch.rand(NODES, NODES, generator=generator) < share, x, 0)


def layer_of(framework: str):
    """A function of features, and the parameters of the layer behind it."""
    edge_index = torch.randint(NODES, (2, 5000), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    if framework == "pyg":
        conv = GCNConv(NODES, 8)
        return lambda x: conv(x, edge_index), list(conv.parameters())
    graph = dgl.add_self_loop(dgl.graph((edge_index[0], edge_index[1]), num_nodes=NODES))
    conv = GraphConv(NODES, 8)
    return lambda x: conv(graph, x), list(conv.parameters())


def counted(framework: str) -> int:
    return sum(row.ours for row in gsb.status().rows if (row.framework, row.operator) == (framework, "linear"))


@pytest.mark.parametrize("framework", ["pyg", "dgl"])
def test_layers(framework):
    run, parameters = layer_of(framework)
    x, dense = words(0.02), words(0.6)
    expected = [run(given) for given in (x, dense)]
    gradients = torch.autograd.grad(expected[0].square().sum(), parameters)
    with gsb.enabled(framework):
        before = counted(framework)
        for _ in range(FOUND_AT + 2):
            for given, wanted in zip((x, dense), expected):
                out = run(given)
                torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-4)
                if given is x:
                    found = torch.autograd.grad(out.square().sum(), parameters)
        assert counted(framework) - before == 3
    for ours, theirs in zip(found, gradients):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
