"""GraphSAGE (Hamilton et al., NeurIPS 2017) with mean aggregation, in PyG. Nothing here knows of the backend."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from models.dataset import Dataset


class SAGE(nn.Module):
    """SAGEConv layers with ReLU and dropout between them: (N, features) to (N, classes) logits."""

    def __init__(self, features: int, hidden: int, classes: int, layers: int, dropout: float):
        super().__init__()
        widths = [features] + [hidden] * (layers - 1) + [classes]
        self.layers = nn.ModuleList(SAGEConv(i, o, aggr="mean") for i, o in itertools.pairwise(widths))
        self.dropout = nn.Dropout(dropout)

    def forward(self, edge_index: Tensor, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = self.dropout(torch.relu(layer(x, edge_index)))
        return self.layers[-1](x, edge_index)


def model_of(dataset: Dataset, config) -> SAGE:
    """The model for a data set, from torch's present seed."""
    return SAGE(dataset.features.shape[1], config.hidden, dataset.num_classes, config.layers, config.dropout)


def graph_of(dataset: Dataset) -> Tensor:
    """The graph in the form that this model's ``forward`` takes."""
    return dataset.edge_index
