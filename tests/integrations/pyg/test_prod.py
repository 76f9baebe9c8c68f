"""Products under PyG: ``MulAggregation`` and ``scatter(reduce="mul")``, against PyG without the backend."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import MessagePassing, MulAggregation, SimpleConv
from torch_geometric.utils import scatter

from tests.integrations.pyg.pair import EDGES, NODES, check_pair, edges, features


class Weighted(MessagePassing):
    """The product of weighted neighbours."""

    def __init__(self):
        super().__init__(aggr="mul")

    def forward(self, x, edge_index, weight):
        return self.propagate(edge_index, x=x, weight=weight)

    def message(self, x_j, weight):
        return x_j * weight.view(-1, 1)


def with_zeros(width: int, rows: int = NODES) -> torch.Tensor:
    x = features(width, rows).detach()
    x[3], x[2, 0], x[4, 0] = 0, 0, 0
    return x.requires_grad_()


@pytest.mark.parametrize("name", EDGES)
def test_layers(name):
    index = edges(name)
    assert check_pair(SimpleConv(MulAggregation()), with_zeros(3), index) == {"copy.prod": 1}
    weight = torch.linspace(-1, 1, index.shape[1], dtype=torch.float64).requires_grad_()
    assert check_pair(Weighted(), with_zeros(3), index, weight) == {"mul.prod": 1}


def test_values_of_edges():
    index = edges()[1]
    messages = with_zeros(4, index.numel())
    assert check_pair(MulAggregation(), messages, index, None, NODES) == {"scatter.prod": 1}
    assert check_pair(lambda x: scatter(x, index, 0, NODES, "mul"), messages) == {"scatter.prod": 1}
    assert check_pair(lambda x: scatter(x.t(), index, 1, reduce="mul"), messages) == {"scatter.prod": 1}
