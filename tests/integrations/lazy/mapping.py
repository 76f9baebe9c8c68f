"""Layers of users that map features, of PyG and of DGL."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch_geometric import nn as pyg

WIDENING, NARROWING = (4, 32), (32, 4)


def said(asked):
    return [one for one, _ in asked]


class Layer(pyg.MessagePassing):
    """A sum of neighbours of mapped features, and what else is done with these."""

    def __init__(self, widths, aggr="sum", then=lambda total, mapped: total, of=lambda mapped: mapped, by="linear"):
        super().__init__(aggr=aggr)
        matrix = torch.randn(*widths, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        self.matrix, self.then, self.of, self.by = nn.Parameter(matrix), then, of, by

    def forward(self, x, edge_index, weight=None):
        sources = x[0] if isinstance(x, tuple) else x
        if self.by == "linear":
            mapped = functional.linear(sources, self.matrix.t())
        else:
            mapped = sources @ self.matrix if self.by == "@" else torch.mm(sources, self.matrix)
        given = self.of(mapped)
        if isinstance(x, tuple):
            return self.then(self.propagate(edge_index, x=(given, x[1]), weight=weight), mapped)
        return self.then(self.propagate(edge_index, x=given, weight=weight), mapped)

    def message(self, x_j, weight):
        return x_j if weight is None else weight.view(-1, 1) * x_j


class OfScope(nn.Module):
    """A user's own layer of DGL: ``function(graph, x)`` in a local scope."""

    def __init__(self, graph, function):
        super().__init__()
        self.graph, self.function = graph, function

    def forward(self, *tensors):
        with self.graph.local_scope():
            return self.function(self.graph, *tensors)
