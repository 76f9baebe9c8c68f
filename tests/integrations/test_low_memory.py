"""Layers under checkpoints, and bits in the place of numbers: the same losses and gradients, bit for bit, in less
memory; and DGL graphs on the arrays of a ``Graph``.
"""

from __future__ import annotations

import copy
import importlib
import pickle

import pytest
import torch
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.core import registry
from gnn_sparse_backend.runtime import large_blocks, pool
from tests.ops.operators import some_graph

FRAMEWORKS = {"pyg": "torch_geometric", "dgl": "dgl"}
NODES, EDGES = 300, 2400


def networks():
    from benchmarks.layers.epochs import networks

    return networks


def network(framework, kind, widths=(12, 16, 8, 5), seed=0):
    pytest.importorskip(FRAMEWORKS[framework], reason=f"{framework} is not installed")
    torch.manual_seed(seed)
    return networks().Network(framework, kind, widths, 0.5)


def edges_for(framework, nodes=NODES, edges=EDGES):
    edge_index = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(1))
    if framework == "pyg":
        return (edge_index,)
    import dgl

    return (dgl.graph(tuple(edge_index), num_nodes=nodes),)


def step(model, edges, x):
    """(logits, gradients of parameters and features) with the dropouts of one seed."""
    torch.manual_seed(7)
    x = x.clone().requires_grad_()
    y = model(edges, x)
    found = torch.autograd.grad(y.square().sum(), [*model.parameters(), x])
    return y.detach(), *found


def features(nodes=NODES, width=12):
    return torch.randn(nodes, width, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("backend", [False, True])
@pytest.mark.parametrize("kind", ["sage", "gcn", "gat"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_checkpoints_change_no_bit(framework, kind, backend):
    model, x, edges = network(framework, kind), features(), edges_for(framework)
    names = list(model.state_dict())
    if backend:
        gsb.enable(framework)
    expected = step(model, edges, x)
    assert gsb.checkpoint_layers(model) is model and list(model.state_dict()) == names
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for ours, theirs in zip(step(each, edges, x), expected, strict=True):
            assert torch.equal(ours, theirs)
    gsb.checkpoint_layers(model, False)
    assert not any("forward" in layer.__dict__ for layer in model.modules())


def used() -> int:
    """Bytes of large tensors that are alive."""
    made = large_blocks.blocks()
    return 0 if made is None else made.used


@pytest.mark.parametrize(("kind", "before", "most"), [("sage", 7, 2.5), ("gcn", 4, 2.5), ("gat", 7, 5)])
def test_little_more_than_inputs_is_kept(kind, before, most):
    """Numbers of nodes times width that a forward pass leaves, of which the inputs of two layers are two."""
    if not gsb.reuse_memory():
        pytest.skip("large tensors are not counted here")
    nodes, width = 20_000, 64
    one = nodes * width * 4
    model, x, edges = (
        network("pyg", kind, (width, width, width, 8)),
        features(nodes, width),
        edges_for("pyg", nodes, 300_000),
    )
    kept = {}
    for memory in ("fast", "low"):
        gsb.enable("pyg", memory=memory)
        gsb.checkpoint_layers(model, memory == "low")
        model(edges, x).sum().backward()
        begin = used()
        loss = model(edges, x).sum()
        kept[memory] = (used() - begin) / one
        loss.backward()
        del loss
    gsb.reuse_memory(False)
    assert kept["fast"] >= before and kept["low"] < most


def test_tensors_above_a_sixteenth_of_the_machine_are_kept_where_memory_is_scarce(monkeypatch):
    """One is freed and made again: at the same address, unless it was above the limit."""
    if not gsb.reuse_memory():
        pytest.skip("large tensors are not kept here")
    gsb.reuse_memory(False)
    monkeypatch.setattr(pool.POOL, "limit", 16 << 20)
    kept = {}
    for memory in ("fast", "low"):
        with gsb.enabled("pyg", memory=memory):
            gsb.reuse_memory()
            torch.empty(32 << 20, dtype=torch.uint8)
            kept[memory] = large_blocks.blocks().kept
    gsb.reuse_memory(False)
    assert kept == {"fast": 0, "low": 32 << 20} and pool.SCARCE_LIMIT > pool.MACHINE // 4


def test_inputs_in_a_half_type_are_rounded_in_both_passes():
    model, x, edges = network("pyg", "sage"), features(), edges_for("pyg")

    class Rounded(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x, edges):
            return self.layer(x.bfloat16().float() if x.requires_grad else x, edges)

    plain = copy.deepcopy(model)
    plain.layers = nn.ModuleList(map(Rounded, plain.layers))
    expected = step(plain, edges, x)
    gsb.checkpoint_layers(model, dtype=torch.bfloat16)
    for ours, theirs in zip(step(model, edges, x), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_hooks_see_one_call_of_a_layer():
    model, x, edges = network("pyg", "sage"), features(), edges_for("pyg")
    seen = []
    model.layers[1].register_forward_hook(lambda module, given, out: seen.append(out))
    with gsb.enabled("pyg"):
        expected = step(model, edges, x)
        gsb.checkpoint_layers(model)
        seen.clear()
        found = step(model, edges, x)
    assert len(seen) == 1
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def test_layers_of_ones_own():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(4, 4)
            self.calls = 0

        def forward(self, x, *, scale=1.0):
            self.calls += 1
            return torch.exp(self.map(x)) * scale

    model = nn.Sequential(Layer(), Layer())
    gsb.checkpoint_layers(model, layers=(Layer,))
    model(torch.ones(3, 4)).sum().backward()
    assert [layer.calls for layer in model] == [2, 2]
    with torch.no_grad():
        model(torch.ones(3, 4))
    assert [layer.calls for layer in model] == [3, 3]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: gsb.checkpoint_layers(3), TypeError, "must be a torch.nn.Module, got int"),
        (lambda: gsb.checkpoint_layers(nn.Linear(2, 2)), ValueError, "Linear has no layers of PyG or dgl.nn"),
        (lambda: gsb.checkpoint_layers(nn.Linear(2, 2), layers=(3,)), TypeError, "a tuple of classes of modules"),
        (lambda: gsb.checkpoint_layers(nn.Linear(2, 2), dtype=torch.int8), ValueError, "got torch.int8"),
        (lambda: gsb.enable("pyg", memory="small"), ValueError, "memory must be 'low' or 'fast', got 'small'"),
        (lambda: gsb.dgl_graph(3), TypeError, "expected a gsb.Graph, got int"),
        (lambda: gsb.dgl_graph(some_graph(4, 5, 9)), ValueError, r"must be square .*got shape \(4, 5\)"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_little_memory_ends_with_the_last_framework(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    for name in ("one", "two"):
        registry.register(name, lambda: None, lambda: None)
    gsb.enable("one", memory="low")
    with gsb.enabled("two", memory="fast"):
        assert not registry.MEMORY.low
    assert registry.MEMORY.low
    gsb.enable("two")
    gsb.disable("one")
    assert registry.MEMORY.low
    gsb.disable()
    assert not registry.MEMORY.low


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("backend", [False, True])
def test_dgl_on_the_arrays_of_a_graph(backend, numbered):
    pytest.importorskip("dgl", reason="DGL is not installed")
    fn = importlib.import_module("dgl.function")
    edge_index = torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(1))
    graph = gsb.Graph.from_edge_index(edge_index, (NODES, NODES))
    g = gsb.dgl_graph(graph, numbered=numbered)
    assert g.formats()["created"] == ["csc"] and g.idtype is torch.int32
    assert (g.num_nodes(), g.num_edges()) == (NODES, EDGES)
    x, w = torch.randn(NODES, 3, requires_grad=True), torch.randn(EDGES, 1, requires_grad=True)
    if backend:
        gsb.enable("dgl")
    g.ndata["x"], g.edata["w"] = x, w
    g.update_all(fn.u_mul_e("x", "w", "m"), fn.sum("m", "y"))
    own = w if numbered else torch.empty_like(w).index_copy(0, graph.edge_numbers.long(), w)
    expected = torch.zeros(NODES, 3).index_add(0, edge_index[1], own * x[edge_index[0]])
    torch.testing.assert_close(g.ndata["y"], expected)
    ours, theirs = (torch.autograd.grad(y.square().sum(), (x, w)) for y in (g.ndata["y"], expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
