"""Layers of PyG on a GPU, where there is one: answers, the backend's share of the calls, waits, capture in a CUDA
graph.
"""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen.cuda.runtime import missing_for_cuda
from gnn_sparse_backend.integrations import reset_status
from tests.integrations.core.test_registry_cuda import fallbacks
from tests.integrations.small_layers import NODES, WIDTH, edge_index, kinds

pytestmark = [
    pytest.mark.moves_by_itself,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
    pytest.mark.skipif(torch.cuda.is_available() and bool(missing_for_cuda()), reason="; ".join(missing_for_cuda())),
]

LAYERS = {
    "SAGE": lambda nn: (nn.SAGEConv(WIDTH, 4), ()),
    "GCN": lambda nn: (nn.GCNConv(WIDTH, 4), ()),
    "GAT": lambda nn: (nn.GATConv(WIDTH, 4, heads=2), ()),
    "GATv2": lambda nn: (nn.GATv2Conv(WIDTH, 4, heads=2), ()),
    "transformer": lambda nn: (nn.TransformerConv(WIDTH, 4, heads=2), ()),
    "RGCN": lambda nn: (nn.RGCNConv(WIDTH, 4, 3), (kinds().cuda(),)),
}


@pytest.fixture(params=LAYERS)
def step(request):
    """A step of a layer on the GPU: its output, and the gradients of x and the parameters."""
    gnn = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    layer, others = LAYERS[request.param](gnn)
    layer, edges = layer.cuda(), edge_index().cuda()
    x = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1)).cuda().requires_grad_()
    leaves = [x, *(p for p in layer.parameters() if p.requires_grad)]

    def call() -> list:
        out = layer(x, edges, *others)
        return [out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)]

    call.x = x
    return call


def alike(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) is (theirs is None)
        if theirs is not None:
            assert ours.is_cuda
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_layer_runs_on_our_kernels_and_does_not_wait(step):
    expected = step()
    with gsb.enabled("pyg"):
        reset_status()
        alike(step(), expected)
        counts = gsb.status().to_dict()["calls"]["pyg"]
        assert any(row["ours"] for row in counts.values()) and not fallbacks("pyg"), gsb.status()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            again = step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        alike(again, expected)


def test_a_layer_is_captured_and_replayed(step):
    with gsb.enabled("pyg"):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
            step()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            results = step()
        with torch.no_grad():
            step.x.mul_(0.5)
        captured.replay()
        alike(results, step())
