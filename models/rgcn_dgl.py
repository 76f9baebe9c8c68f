"""The relational graph convolutional network (Schlichtkrull et al., ESWC 2018) in DGL. Nothing here knows of the
backend.
"""

from __future__ import annotations

import itertools

import dgl
import torch
from dgl.nn import RelGraphConv
from torch import Tensor, nn

from models.relational_data import RelationalDataset
from models.rgcn_batches import batches


class RGCN(nn.Module):
    """RelGraphConv layers with ReLU and dropout between them on learned node embeddings: (N, classes) logits."""

    def __init__(self, nodes: int, hidden: int, classes: int, layers: int, dropout: float, relations: int, bases: int):
        super().__init__()
        widths = [hidden] * layers + [classes]
        self.embedding = nn.Parameter(nn.init.xavier_uniform_(torch.empty(nodes, hidden)))
        self.layers = nn.ModuleList(
            RelGraphConv(i, o, relations, "basis", bases) for i, o in itertools.pairwise(widths)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph: tuple[dgl.DGLGraph, Tensor, Tensor, Tensor | None], _: Tensor) -> Tensor:
        graph, kinds, norm, nodes = graph
        x = self.embedding if nodes is None else self.embedding[nodes]
        for layer in self.layers[:-1]:
            x = self.dropout(torch.relu(layer(graph, x, kinds, norm)))
        return self.layers[-1](graph, x, kinds, norm)


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


def graph_of(dataset: RelationalDataset) -> tuple[dgl.DGLGraph, Tensor, Tensor, None]:
    """The graph, the relations of its edges, and 1 / the number of edges of the same relation into the same node."""
    return _graph(dataset.edge_index, dataset.edge_type, dataset.num_nodes, None)


def batches_of(dataset: RelationalDataset, config):
    """Mini-batches, as ``rgcn_batches.batches`` gives them."""
    return batches(
        dataset, config, lambda batch: _graph(batch.edge_index, batch.edge_type, len(batch.nodes), batch.nodes)
    )


def _graph(edge_index: Tensor, edge_type: Tensor, count: int, nodes: Tensor | None) -> tuple:
    source, destination = edge_index
    _, pair, counts = torch.unique(edge_type * count + destination, return_inverse=True, return_counts=True)
    norm = counts.float().reciprocal()[pair].unsqueeze(1)
    return dgl.graph((source, destination), num_nodes=count), edge_type, norm, nodes
