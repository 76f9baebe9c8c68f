"""Layers whose messages sum over features, dot products of both ends, run as one kernel where they read rows once."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from tests.integrations.pyg.pair import check_pair, edges, features


class OfEnds(MessagePassing):
    """``message`` is ``function(x_i, x_j, index)``."""

    def __init__(self, function, aggr="sum"):
        super().__init__(aggr=aggr)
        self.function = function

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j, index):
        return self.function(x_i, x_j, index)


def dot(x_i, x_j):
    return (x_i * x_j).sum(-1, keepdim=True)


def of_heads(x_i, x_j):
    x_i, x_j = x_i.view(-1, 2, 3), x_j.view(-1, 2, 3)
    return (torch.tanh((x_i * x_j).sum(-1)).unsqueeze(-1) * x_j).view(-1, 6)


@pytest.mark.parametrize(
    ("function", "aggr"),
    [
        (lambda x_i, x_j, _: torch.sigmoid(dot(x_i, x_j)) * x_j, "sum"),
        (lambda x_i, x_j, _: torch.exp(-((x_i - x_j) ** 2).sum(-1, keepdim=True)) * (x_j - x_i), "mean"),
        (lambda x_i, x_j, _: x_j * (2 + (x_i * x_j).sum(dim=-1).view(-1, 1)), "max"),
        (lambda x_i, x_j, _: of_heads(x_i, x_j), "sum"),
        (lambda x_i, x_j, _: dot(torch.sigmoid(dot(x_i, x_j)) * x_j, x_i) * x_j, "sum"),
    ],
)
def test_one_operator(function, aggr):
    assert check_pair(OfEnds(function, aggr), features(6), edges()) == {f"message.{aggr}": 1}


def test_values_that_the_sum_does_not_read_go_by_two_kernels():
    """Gradients of one kernel would gather twice what those of two do."""
    layer = OfEnds(lambda x_i, x_j, _: torch.sigmoid(dot(x_i[:, :3], x_i[:, 3:])) * x_j)
    check_pair(layer, features(6), edges())
    other = OfEnds(lambda x_i, x_j, _: torch.sigmoid(dot(x_i, x_i)) * x_j)
    assert check_pair(other, features(6), edges()) == {"edge_map": 1, "mul.sum": 1}


def test_softmax_of_a_function_of_a_sum():
    """An attention has no values of its own for an edge: its scores are computed first."""

    def function(x_i, x_j, index):
        return softmax(functional.leaky_relu(dot(x_i, x_j)), index) * x_j

    assert check_pair(OfEnds(function), features(6), edges())["edge_map"] == 1
