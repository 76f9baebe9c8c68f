"""GraphSAGE (Hamilton et al., NeurIPS 2017) with mean aggregation, in DGL. Nothing here knows of the backend."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import dgl
import torch
from dgl.nn import SAGEConv
from torch import Tensor, nn

from models.dataset import Dataset


class SAGE(nn.Module):
    """SAGEConv layers with ReLU and dropout between them: (N, features) to (N, classes) logits."""

    def __init__(self, features: int, hidden: int, classes: int, layers: int, dropout: float):
        super().__init__()
        widths = [features] + [hidden] * (layers - 1) + [classes]
        self.layers = nn.ModuleList(SAGEConv(i, o, "mean") for i, o in itertools.pairwise(widths))
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph: dgl.DGLGraph | Sequence, x: Tensor) -> Tensor:
        """graph: one for all layers, or a block for each."""
        graphs = [graph] * len(self.layers) if isinstance(graph, dgl.DGLGraph) else graph
        for layer, graph in zip(self.layers[:-1], graphs):
            x = self.dropout(torch.relu(layer(graph, x)))
        return self.layers[-1](graphs[-1], x)


def model_of(dataset: Dataset, config) -> SAGE:
    """The model for a data set, from torch's present seed."""
    return SAGE(dataset.features.shape[1], config.hidden, dataset.num_classes, config.layers, config.dropout)


def graph_of(dataset: Dataset) -> dgl.DGLGraph:
    """The graph in the form that this model's ``forward`` takes."""
    source, destination = dataset.edge_index
    return dgl.graph((source, destination), num_nodes=dataset.num_nodes)
