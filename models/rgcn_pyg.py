"""The relational graph convolutional network (Schlichtkrull et al., ESWC 2018) in PyG. Nothing here knows of the
backend.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch_geometric.nn import RGCNConv

from models.relational_data import RelationalDataset
from models.rgcn_batches import batches


class RGCN(nn.Module):
    """RGCNConv layers with ReLU and dropout between them on learned node embeddings: (N, classes) logits."""

    def __init__(self, nodes: int, hidden: int, classes: int, layers: int, dropout: float, relations: int, bases: int):
        super().__init__()
        widths = [hidden] * layers + [classes]
        self.embedding = nn.Parameter(nn.init.xavier_uniform_(torch.empty(nodes, hidden)))
        self.layers = nn.ModuleList(RGCNConv(i, o, relations, num_bases=bases) for i, o in itertools.pairwise(widths))
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph: tuple[Tensor, Tensor, Tensor | None], _: Tensor) -> Tensor:
        *edges, nodes = graph
        x = self.embedding if nodes is None else self.embedding[nodes]
        for layer in self.layers[:-1]:
            x = self.dropout(torch.relu(layer(x, *edges)))
        return self.layers[-1](x, *edges)


def model_of(dataset: RelationalDataset, config) -> RGCN:
    """The model for a data set, from torch's present seed."""
    bases = min(config.bases, dataset.num_relations)
    return RGCN(
        dataset.num_nodes,
        config.hidden,
        dataset.num_classes,
        config.layers,
        config.dropout,
        dataset.num_relations,
        bases,
    )


def graph_of(dataset: RelationalDataset) -> tuple[Tensor, Tensor, None]:
    """The edges and their relations, on all nodes."""
    return dataset.edge_index, dataset.edge_type, None


def batches_of(dataset: RelationalDataset, config):
    """Mini-batches, as ``rgcn_batches.batches`` gives them."""
    return batches(dataset, config, lambda batch: (batch.edge_index, batch.edge_type, batch.nodes))
