"""Layers of PyG under torch.compile while PyG is enabled: they run what they run in eager programs."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.nn import Linear
from torch_geometric.nn import (
    FastRGCNConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    RGCNConv,
    SAGEConv,
    Sequential,
    TransformerConv,
)

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.traced.walk import put_operators
from tests.integrations.traced.programs import VERSION

NODES, EDGES, WIDTH, RELATIONS = 31, 190, 8, 3

LAYERS = {
    # name: (layer, names of what it is called with beside features and edges, what is counted)
    "SAGE": (lambda: SAGEConv(WIDTH, WIDTH), (), "copy.mean"),
    "SAGE-max": (lambda: SAGEConv(WIDTH, WIDTH, aggr="max"), (), "copy.max"),
    "SAGE-sum": (lambda: SAGEConv(WIDTH, WIDTH, aggr="sum"), (), "copy.sum"),
    "GIN": (lambda: GINConv(Linear(WIDTH, WIDTH), train_eps=True), (), "copy.sum"),
    "GCN": (lambda: GCNConv(WIDTH, WIDTH), (), "mul.sum"),
    "GCN-weights": (lambda: GCNConv(WIDTH, WIDTH), ("weight",), "mul.sum"),
    "GCN-cached": (lambda: GCNConv(WIDTH, WIDTH, cached=True), (), "mul.sum"),
    # traced whole, so that the normalisation is a part of the message
    "GCN-alone": (lambda: GCNConv(WIDTH, WIDTH, add_self_loops=False), (), "message.sum"),
    "GraphConv": (lambda: GraphConv(WIDTH, WIDTH), ("weight",), "mul.sum"),
    "GAT": (lambda: GATConv(WIDTH, 4, heads=2), (), "attention"),
    "GATv2": (lambda: GATv2Conv(WIDTH, 4, heads=2, add_self_loops=False), (), "attention"),
    "Transformer": (lambda: TransformerConv(WIDTH, 4, heads=2), (), "attention"),
    "RGCN": (lambda: RGCNConv(WIDTH, WIDTH, RELATIONS), ("kind",), "rgms"),
    "FastRGCN": (lambda: FastRGCNConv(WIDTH, WIDTH, RELATIONS), ("kind",), "scatter.sum"),
}


def drawn(seed: int = 0, dtype=torch.float32) -> dict[str, torch.Tensor]:
    gen = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(NODES, WIDTH, generator=gen).to(dtype),
        "edges": torch.randint(NODES - 1, (2, EDGES), generator=gen),
        "weight": torch.rand(EDGES, generator=gen).to(dtype),
        "kind": torch.randint(RELATIONS, (EDGES,), generator=gen),
    }


def outcome(layer, names, given: dict) -> list[torch.Tensor]:
    """The result, and the gradients of features and parameters."""
    x = given["x"].clone().requires_grad_()
    result = layer(x, given["edges"], *(given[name] for name in names))
    cotangent = torch.randn(result.shape, generator=torch.Generator().manual_seed(5)).to(result.dtype)
    result.backward(cotangent)
    return [result.detach(), x.grad, *(p.grad for p in layer.parameters())]


class Recorder:
    """A backend: our operators, and AOTAutograd, whose backward graphs it keeps."""

    def __init__(self):
        self.backward: list[torch.fx.GraphModule] = []
        self.compiler = aot_autograd(fw_compiler=_as_it_is, bw_compiler=self.keep)

    def keep(self, graph, inputs):
        self.backward.append(graph)
        return make_boxed_func(graph.forward)

    def __call__(self, graph, inputs):
        put_operators(graph.graph, "pyg")
        graph.recompile()
        return self.compiler(graph, inputs)

    def scatters(self) -> list[str]:
        """What scatters tensors with a row for each edge, and more than a number in it."""
        wide = ("scatter", "index_add", "index_put", "index_reduce")
        return [
            str(node.target)
            for graph in self.backward
            for node in graph.graph.nodes
            if any(name in str(node.target) for name in wide)
            and any(
                len(each.meta["val"].shape) > 1 and each.meta["val"].shape[0] >= EDGES
                for each in node.all_input_nodes
                if isinstance(each.meta.get("val"), torch.Tensor)
            )
        ]


def _as_it_is(graph, inputs):
    return make_boxed_func(graph.forward)


@pytest.mark.short(4)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_keep_their_kernels(name):
    make, names, operator = LAYERS[name]
    torch.manual_seed(0)
    layer, given = make(), drawn()
    expected = outcome(copy.deepcopy(layer), names, given)
    gsb.enable("pyg")
    recorder = Recorder()
    found = outcome(torch.compile(layer, backend=recorder), names, given)
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)
    calls = gsb.status().to_dict()["calls"]["pyg"]
    assert calls[operator]["ours"] >= 1
    assert recorder.scatters() == []


@pytest.mark.parametrize("name, operator", [("SAGE", "copy.mean"), ("GAT", "attention"), ("GCN", "message.sum")])
def test_layers_are_traced_whole(name, operator):
    make, names, _ = LAYERS[name]
    torch.manual_seed(0)
    layer, given = make(), drawn()
    expected = outcome(copy.deepcopy(layer), names, given)
    gsb.enable("pyg")
    # older ones have to be told what fullgraph says by itself since: to trace sizes that nobody knows before
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True) if VERSION < (2, 13) else nullcontext():
        found = outcome(torch.compile(layer, backend=Recorder(), fullgraph=True), names, given)
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)
    assert gsb.status().to_dict()["calls"]["pyg"][operator]["ours"] == 1


def two_layers(name: str, backend) -> tuple[list, list]:
    """What two layers after each other give in one program, and without it."""
    make, names, _ = LAYERS[name]
    torch.manual_seed(0)
    layers, given = Sequential("x, edges", [(make(), "x, edges -> x") for _ in range(2)]), drawn()
    expected = outcome(copy.deepcopy(layers), names, given)
    gsb.enable("pyg")
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True) if VERSION < (2, 13) else nullcontext():
        return outcome(torch.compile(layers, backend=backend, fullgraph=True), names, given), expected


@pytest.mark.parametrize("name", ["GAT", "GCN"])
def test_layers_that_drop_self_loops_share_a_number_of_edges(name):
    sizes = []

    def backend(graph, inputs):
        put_operators(graph.graph, "pyg")
        sizes.extend(node for node in graph.graph.nodes if "unbacked_bindings" in node.meta)
        graph.recompile()
        return graph.forward

    found, expected = two_layers(name, backend)
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)
    assert len(sizes) == (1 if VERSION >= (2, 13) else len(sizes))


@pytest.mark.slow
@pytest.mark.skipif(VERSION < (2, 13), reason="what older ones compile of such sizes is not known")
@pytest.mark.parametrize("name", ["GAT", "GCN"])
def test_two_layers_that_drop_self_loops_by_inductor(name):
    for ours, theirs in zip(*two_layers(name, "inductor")):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["SAGE", "GAT"])
def test_autocast(name):
    make, names, operator = LAYERS[name]
    torch.manual_seed(0)
    layer, given = make(), drawn()
    with torch.autocast("cpu", torch.bfloat16):
        expected = outcome(copy.deepcopy(layer), names, given)
        gsb.enable("pyg")
        found = outcome(torch.compile(layer, backend=Recorder()), names, given)
    for ours, theirs in zip(found, expected):
        assert ours.dtype is theirs.dtype
        torch.testing.assert_close(ours.float(), theirs.float(), rtol=5e-2, atol=5e-2)
    assert gsb.status().to_dict()["calls"]["pyg"][operator]["ours"] == 1
