"""A linear map of a sum of neighbours goes before the sum where that costs less, and gives the same."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import orders, rows

pytest.importorskip("torch_geometric")

from torch_geometric.nn import MessagePassing, SAGEConv

from gnn_sparse_backend.integrations.pyg import layers
from tests.integrations.pyg import pair


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    monkeypatch.setattr(rows, "LEAST", 1)
    monkeypatch.setattr(layers, "LEAST", 1)


@pytest.fixture
def asked(monkeypatch):
    """What was asked of the rule, and what it said."""
    found = []

    def asking(*sizes, needed):
        found.append((sizes, said := rule(*sizes, needed=needed)))
        return said

    rule = orders.maps_first
    monkeypatch.setattr(orders, "maps_first", asking)
    return found


class Layer(MessagePassing):
    """A product of the sum of neighbours, and what else is done with the sum."""

    def __init__(self, matrix, aggr, then=lambda sum, product: product):
        super().__init__(aggr=aggr)
        self.matrix, self.then = torch.nn.Parameter(matrix), then

    def forward(self, x, edge_index, weight=None):
        total = self.propagate(edge_index, x=x, weight=weight)
        return self.then(total, total @ self.matrix)

    def message(self, x_j, weight):
        return x_j if weight is None else weight.view(-1, 1) * x_j


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("edges", ["random", "large"])
def test_a_narrowing_map_goes_first(asked, aggr, weighted, edges):
    index = pair.edges(edges)
    weight = (torch.rand(index.shape[1], dtype=torch.float64, requires_grad=True),) if weighted else ()
    pair.check_pair(Layer(torch.randn(16, 2, dtype=torch.float64), aggr), pair.features(16), index, *weight)
    assert [said for _, said in asked] == [True]
    assert asked[0][0] == (pair.NODES, pair.NODES, index.shape[1], 16, 2, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layer", [SAGEConv, Layer])
def test_under_autocast_it_goes_first_too(asked, layer, dtype):
    """Of features as they are given to a first layer, and as a layer before leaves them."""
    layer = layer(16, 2) if layer is SAGEConv else layer(torch.randn(16, 2), "mean")
    x, index = pair.features(16, dtype=torch.float32).to(dtype).detach().requires_grad_(), pair.edges()
    expected, found = pair.in_autocast(layer, x, index)
    assert [said for _, said in asked] == [True]
    for name, value in expected.items():
        assert found[name].dtype is value.dtype and type(found[name]) is torch.Tensor
        torch.testing.assert_close(found[name].float(), value.float(), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("edges", ["none", "duplicates", "self_loops"])
def test_few_edges(edges):
    pair.check_pair(Layer(torch.randn(16, 2, dtype=torch.float64), "mean"), pair.features(16), pair.edges(edges))


def test_a_widening_map_goes_last(asked):
    pair.check_pair(Layer(torch.randn(4, 32, dtype=torch.float64), "sum"), pair.features(4), pair.edges())
    assert [said for _, said in asked] == [False]


def test_a_sum_that_is_used_again_is_computed(asked):
    layer = Layer(
        torch.randn(16, 2, dtype=torch.float64), "sum", lambda total, product: (product + total[:, :2]).relu()
    )
    pair.check_pair(layer, pair.features(16), pair.edges())
    assert [said for _, said in asked] == [True]


def test_maxima_are_not_linear(asked):
    pair.check_pair(Layer(torch.randn(16, 2, dtype=torch.float64), "max"), pair.features(16), pair.edges())
    assert asked == []


def test_layers_of_pyg(asked):
    pair.check_pair(SAGEConv(16, 2).double(), pair.features(16), pair.edges())
    assert [said for _, said in asked] == [True]


def test_a_sum_that_nobody_maps_is_an_ordinary_tensor():
    layer = Layer(torch.randn(16, 2), "sum", lambda total, product: total)
    with gsb.enabled("pyg"):
        found = layer(pair.features(16, dtype=torch.float32), pair.edges())
    assert type(found) is torch.Tensor


def test_a_map_goes_by_what_stands_in_the_place_of_pytorchs(calls_to, monkeypatch):
    layer = Layer(torch.randn(16, 2), "sum")
    with gsb.enabled("pyg"):
        made = calls_to(torch.nn.functional, "linear")
        layer(pair.features(16, dtype=torch.float32), pair.edges())
        monkeypatch.undo()  # while the backend is on: else its function would come back after it is off
    assert [len(call.arguments) for call in made] == [2]
