"""Layers that TorchScript has compiled with ``GSB_TORCHSCRIPT=1``: their reductions are ours, in both directions.

`test_modes` runs these tests in a process of their own, since TorchScript keeps what it has compiled.
"""

import io

import pytest
import torch
from torch_geometric import nn as gnn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from tests.integrations.pyg.pair import NODES, calls, edges, features, step


class Called(torch.nn.Module):
    """A layer with the arguments that TorchScript is to compile it for."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.layer(x, edge_index)


LAYERS = {
    "scatter.sum": lambda: gnn.GraphConv(5, 4),
    "scatter.mean": lambda: gnn.SAGEConv(5, 4),
    "scatter.max": lambda: gnn.SAGEConv(5, 4, "max"),
    "softmax": lambda: Called(gnn.TransformerConv(5, 4, heads=2)),
}


@pytest.mark.parametrize("counted", LAYERS)
def test_layers(counted):
    layer = LAYERS[counted]().double()
    expected = step(layer, features(5), edges())
    with gsb.enabled("pyg"):
        scripted = torch.jit.script(layer)
        reset_status()
        for _ in range(3):  # TorchScript makes another program after the first calls
            found = step(scripted, features(5), edges())
        assert calls()[counted] == 3 and all(type(n) is int for n in calls().values())
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    reset_status()
    torch.testing.assert_close(scripted(features(5), edges()), expected["output"])
    assert calls() == {}  # PyG's own, now that it is disabled


def test_programs_are_saved_and_loaded():
    layer = gnn.SAGEConv(5, 4).double()
    with gsb.enabled("pyg"):
        torch.jit.save(torch.jit.script(layer), file := io.BytesIO())
        file.seek(0)
        loaded = torch.jit.load(file)
        reset_status()
        out = loaded(features(5), edges())
        assert calls() == {"scatter.mean": 1}
    torch.testing.assert_close(out, layer(features(5), edges()))


def test_errors_are_those_of_pyg():
    layer = gnn.SAGEConv(5, 4).double()
    index = edges().clone()
    index[1, 3] = NODES
    with gsb.enabled("pyg"):
        scripted = torch.jit.script(layer)
        with pytest.raises(Exception, match="out of bounds|out of range"):
            scripted(features(5), index)


def test_compiled_programs_are_as_without_it():
    layer = gnn.SAGEConv(5, 4).double()
    expected = layer(features(5), edges())
    with gsb.enabled("pyg"):
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(features(5), edges()), expected)
    torch._dynamo.reset()
