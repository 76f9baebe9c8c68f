"""Layers by chunks of rows: what the frameworks alone compute, in float64, and what is alive at the peak of a step."""

from __future__ import annotations

import importlib
from functools import partial

import pytest
import torch
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.chunked import slices
from gnn_sparse_backend.runtime import large_blocks
from tests.integrations.test_low_memory import network

NODES, EDGES = 120, 900
PYG = {
    "sage": lambda layers, *widths: layers.SAGEConv(*widths),
    "sage of sums": lambda layers, *widths: layers.SAGEConv(*widths, aggr="sum", root_weight=False, bias=False),
    "graph": lambda layers, *widths: layers.GraphConv(*widths),
    "gcn": lambda layers, *widths: layers.GCNConv(*widths),
    "gcn without loops": lambda layers, *widths: layers.GCNConv(*widths, add_self_loops=False, bias=False),
    "gat": lambda layers, a, b: layers.GATConv(a, b // 3, 3, negative_slope=0.1),
    "gat without loops": lambda layers, *widths: layers.GATConv(*widths, add_self_loops=False, bias=False),
}
DGL = {"sage": lambda layers, *widths: layers.SAGEConv(*widths, "mean")} | {
    norm: partial(lambda layers, *widths, norm: layers.GraphConv(*widths, norm, allow_zero_in_degree=True), norm=norm)
    for norm in ("both", "right", "left", "none")
}
CASES = [("pyg", name, make) for name, make in PYG.items()] + [("dgl", name, make) for name, make in DGL.items()]


class Layers(nn.Module):
    """One layer, its arguments in PyG's order."""

    def __init__(self, layer, framework):
        super().__init__()
        self.layer, self.first = layer, framework == "dgl"

    def forward(self, x, edges):
        return self.layer(edges, x) if self.first else self.layer(x, edges)


def edges_without_loops(nodes=NODES, edges=EDGES):
    """Some nodes have no edges, and the graph is not symmetric."""
    edge_index = torch.randint(nodes - 9, (2, edges), generator=torch.Generator().manual_seed(1))
    return edge_index[:, edge_index[0] != edge_index[1]]


def given_to(framework, edge_index, nodes=NODES):
    if framework == "pyg":
        return edge_index
    return importlib.import_module("dgl").graph(tuple(edge_index), num_nodes=nodes)


def gradients(model, x, edges, wanted):
    x = x.clone().requires_grad_(wanted)
    y = model(x, edges)
    leaves = [*model.parameters(), *([x] if wanted else [])]
    return y.detach(), *torch.autograd.grad((y * torch.linspace(-1, 2, y.shape[1])).sin().sum(), leaves)


def by_rows(framework):
    calls = gsb.status().to_dict()["calls"].get(framework, {})
    return calls.get("layer by rows", {}).get("ours", 0)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(slices, "CHUNK", 1 << 11)
    monkeypatch.setattr(slices, "EDGES", 100)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("widths", [(7, 12), (12, 6)])
@pytest.mark.parametrize(("framework", "name", "make"), CASES, ids=[f"{f} {n}" for f, n, _ in CASES])
def test_equals_the_framework_alone(framework, name, make, widths, wanted, small_chunks):
    package = {"pyg": "torch_geometric", "dgl": "dgl"}[framework]
    pytest.importorskip(package, reason=f"{package} is not installed")
    torch.manual_seed(0)
    model = Layers(make(importlib.import_module(f"{package}.nn"), *widths), framework).double()
    x = torch.randn(NODES, widths[0], dtype=torch.float64)
    edges = given_to(framework, edges_without_loops())
    expected = gradients(model, x, edges, wanted)
    gsb.enable(framework, memory="low")
    gsb.checkpoint_layers(model)
    before = by_rows(framework)
    found = gradients(model, x, edges, wanted)
    assert by_rows(framework) == before + 1
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_other_calls_are_checkpoints(small_chunks):
    """Loops among the edges, edge weights, attention with dropout, features of nobody's: PyG's own steps."""
    layers = pytest.importorskip("torch_geometric.nn", reason="PyG is not installed")
    torch.manual_seed(0)
    x, edges = torch.randn(NODES, 12), edges_without_loops()
    with_loops = torch.cat([edges, torch.full((2, 1), 3)], 1)
    gsb.enable("pyg", memory="low")
    before = by_rows("pyg")
    for layer, given in (
        (layers.GCNConv(12, 6), (x, with_loops)),
        (layers.GCNConv(12, 6, improved=True), (x, edges)),
        (layers.GCNConv(12, 6), (x, edges, torch.rand(edges.shape[1]))),
        (layers.GATConv(12, 6), (x, with_loops)),
        (layers.GATConv(12, 6, dropout=0.5), (x, edges)),
        (layers.SAGEConv(12, 6, aggr="max"), (x, edges)),
        (layers.SAGEConv(12, 6, normalize=True), (x, edges)),
    ):
        model = nn.ModuleList([layer])
        expected = (torch.manual_seed(1), layer(*given))[1]
        gsb.checkpoint_layers(model)
        torch.testing.assert_close((torch.manual_seed(1), layer(*given))[1], expected)
    assert by_rows("pyg") == before


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat"])
def test_inputs_in_a_half_type(kind, small_chunks):
    """The layer computes with rounded inputs in both passes."""
    model, edges = network("pyg", kind, (12, 6)).double(), edges_without_loops()
    x = torch.randn(NODES, 12, dtype=torch.float64)
    expected = gradients(lambda_of(model), x.bfloat16().double(), edges, True)
    gsb.enable("pyg", memory="low")
    gsb.checkpoint_layers(model, dtype=torch.bfloat16)
    torch.testing.assert_close(gradients(lambda_of(model), x, edges, True), expected, rtol=1e-7, atol=1e-9)


def lambda_of(network):
    class Swapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x, edges):
            return self.network((edges,), x)

    return Swapped()


def test_gradients_of_gradients_are_refused(small_chunks):
    model, edges = network("pyg", "sage", (12, 6)), edges_without_loops()
    gsb.enable("pyg", memory="low")
    gsb.checkpoint_layers(model)
    x = torch.randn(NODES, 12, requires_grad=True)
    (found,) = torch.autograd.grad(model((edges,), x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        found.sum().backward()


@pytest.mark.parametrize(("kind", "most"), [("sage", 5), ("gcn", 5), ("gat", 5.4)])
def test_what_is_alive_at_the_peak(kind, most, monkeypatch):
    """In numbers of nodes times width: a hidden layer's input, its result and what a unit and a dropout make of that,
    and masks. Weights of edges by heads alone would be 6 of them.
    """
    if not gsb.reuse_memory():
        pytest.skip("large tensors are not counted here")
    nodes, width = 12_000, 128
    one = nodes * width * 4
    monkeypatch.setattr(slices, "CHUNK", one // 32)
    monkeypatch.setattr(slices, "EDGES", 1 << 14)
    edges = edges_without_loops(nodes, 1_200_000)
    edges = edges[:, edges[1].argsort(stable=True)]
    model, x = network("pyg", kind, (32, width, width, 8)), torch.randn(nodes, 32)
    gsb.enable("pyg", memory="low")
    gsb.checkpoint_layers(model)
    state = large_blocks.blocks()._state
    model((edges,), x).sum().backward()
    begin = state.most = state.used
    model((edges,), x).sum().backward()
    peak = (state.most - begin) / one
    gsb.reuse_memory(False)
    assert peak < most
    assert state.used - begin < one / 4
