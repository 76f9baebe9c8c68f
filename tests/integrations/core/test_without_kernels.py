"""Layers whose forward pass ran on kernels, and whose backward pass has none: the gradients are the framework's."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import KernelStore, default, folders
from gnn_sparse_backend.compiler.cache.bounded import forget
from gnn_sparse_backend.compiler.cache.disk import DiskCache
from gnn_sparse_backend.compiler.codegen import load
from gnn_sparse_backend.compiler.own_schedules import in_force
from gnn_sparse_backend.compiler.packs.errors import NoKernelError, NoKernelWarning
from gnn_sparse_backend.integrations.core.counters import NO_KERNEL

NODES, EDGES, WIDTH = 60, 3000, 8


def edges() -> torch.Tensor:
    return torch.randint(0, NODES - 1, (2, EDGES), generator=torch.Generator().manual_seed(7))


def of_pyg(name: str, *given, **options):
    def make():
        from torch_geometric import nn

        layer, index = getattr(nn, name)(WIDTH, 6, *given, **options), edges()
        more = (torch.arange(EDGES) % 3,) if name == "RGCNConv" else ()
        return layer, lambda x: layer(x, index, *more)

    return make


def of_dgl(name: str, *given, **options):
    def make():
        import dgl
        from dgl.nn import pytorch as nn

        layer, (u, v) = getattr(nn, name)(WIDTH, 6, *given, **options), edges()
        graph = dgl.graph((u, v), num_nodes=NODES)
        more = (torch.arange(EDGES) % 3,) if name == "RelGraphConv" else ()
        return layer, lambda x: layer(graph, x, *more)

    return make


# whose gradients run other kernels than the layers themselves
LAYERS = {
    ("pyg", "GATConv"): of_pyg("GATConv", heads=2),
    ("pyg", "SAGEConv of maxima"): of_pyg("SAGEConv", aggr="max"),
    ("pyg", "TransformerConv"): of_pyg("TransformerConv", heads=2),
    ("pyg", "RGCNConv"): of_pyg("RGCNConv", 3, num_bases=2),
    ("pyg", "ResGatedGraphConv"): of_pyg("ResGatedGraphConv"),
    ("dgl", "GATv2Conv"): of_dgl("GATv2Conv", 2, allow_zero_in_degree=True),
    ("dgl", "GATConv"): of_dgl("GATConv", 2, allow_zero_in_degree=True),
    ("dgl", "SAGEConv of maxima"): of_dgl("SAGEConv", "pool"),
    ("dgl", "RelGraphConv"): of_dgl("RelGraphConv", 3, "basis", 2),
}


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """Kernels are compiled anew. Called, it leaves no room to compile others."""
    monkeypatch.setattr(default.default_store, "_store", KernelStore(DiskCache(tmp_path), load))
    forget()
    in_force.renew()
    return lambda: monkeypatch.setattr(folders, "ROOM", 1 << 62)


def features() -> torch.Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1)).requires_grad_()


@pytest.mark.parametrize("framework, name", LAYERS)
def test_gradients_are_the_frameworks(framework, name, empty_cache):
    pytest.importorskip({"pyg": "torch_geometric", "dgl": "dgl"}[framework])
    torch.manual_seed(0)
    layer, run = LAYERS[framework, name]()

    def step(between=lambda: None):
        x = features()
        out = run(x)
        between()
        loss = (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum()
        return torch.autograd.grad(loss, [x, *layer.parameters()], allow_unused=True)

    expected = step()
    with gsb.enabled(framework), pytest.warns(NoKernelWarning, match="set TMPDIR"):
        found = step(empty_cache)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    rows = gsb.status().rows
    assert any(row.framework == framework and row.ours for row in rows)
    assert any(NO_KERNEL in row.fallbacks for row in rows)


def test_a_forward_pass_without_kernels_is_the_frameworks_and_so_is_its_backward_pass(empty_cache):
    pytest.importorskip("torch_geometric")
    layer, run = of_pyg("GCNConv")()
    x = features()
    expected = torch.autograd.grad(run(x).sum(), [x, *layer.parameters()])
    empty_cache()
    with gsb.enabled("pyg"), pytest.warns(NoKernelWarning):
        found = torch.autograd.grad(run(x).sum(), [x, *layer.parameters()])
    torch.testing.assert_close(found, expected)
    assert all(row.framework == "pyg" and not row.ours for row in gsb.status().rows)


def test_users_of_an_operator_are_told(empty_cache):
    empty_cache()
    with pytest.raises(NoKernelError, match="set TMPDIR"):
        gsb.spmm(gsb.Graph.from_edge_index(edges(), (NODES, NODES)), features())
