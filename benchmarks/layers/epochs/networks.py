"""Networks of the frameworks' own layers, as they are by default, with ReLU and dropout between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from models.dataset import Dataset

KINDS = ("sage", "gcn", "gat", "gin", "rgcn")
HEADS, RELATIONS, BASES = 8, 8, 4


class Network(nn.Module):
    """Layers of a kind: (N, widths[0]) features to (N, widths[-1]) logits.

    Heads of attention lie side by side in a hidden layer; the last layer has one.
    """

    def __init__(self, framework: str, kind: str, widths: Sequence[int], dropout: float) -> None:
        super().__init__()
        make = {"dgl": _dgl_layer, "pyg": _pyg_layer}[framework]
        pairs = list(itertools.pairwise(widths))
        heads = [HEADS] * (len(pairs) - 1) + [1]
        self.layers = nn.ModuleList(make(kind, i, o, h) for (i, o), h in zip(pairs, heads))
        self.dropout = nn.Dropout(dropout)
        self.first = framework == "dgl"

    def forward(self, edges: tuple, x: Tensor) -> Tensor:
        """edges: the graph, or the blocks of the layers that DGL has sampled; and the relations of the edges, where
        layers want them.
        """
        graphs, *kinds = edges
        for at, layer in enumerate(self.layers):
            graph = graphs[at] if isinstance(graphs, list) else graphs
            x = (layer(graph, x, *kinds) if self.first else layer(x, graph, *kinds)).flatten(1)
            if at + 1 < len(self.layers):
                x = self.dropout(torch.relu(x))
        return x


def _perceptron(fan_in: int, fan_out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(fan_in, fan_out), nn.ReLU(), nn.Linear(fan_out, fan_out))


def _dgl_layer(kind: str, fan_in: int, fan_out: int, heads: int) -> nn.Module:
    from dgl import nn as layers

    zero_degree = {"allow_zero_in_degree": True}
    makers: dict[str, Callable[[], nn.Module]] = {
        "sage": lambda: layers.SAGEConv(fan_in, fan_out, "mean"),
        "gcn": lambda: layers.GraphConv(fan_in, fan_out, **zero_degree),
        "gat": lambda: layers.GATConv(fan_in, fan_out // heads, heads, **zero_degree),
        "gin": lambda: layers.GINConv(_perceptron(fan_in, fan_out), "sum"),
        "rgcn": lambda: layers.RelGraphConv(fan_in, fan_out, RELATIONS, "basis", BASES),
    }
    return makers[kind]()


def _pyg_layer(kind: str, fan_in: int, fan_out: int, heads: int) -> nn.Module:
    from torch_geometric import nn as layers

    makers: dict[str, Callable[[], nn.Module]] = {
        "sage": lambda: layers.SAGEConv(fan_in, fan_out),
        "gcn": lambda: layers.GCNConv(fan_in, fan_out),
        "gat": lambda: layers.GATConv(fan_in, fan_out // heads, heads),
        "gin": lambda: layers.GINConv(_perceptron(fan_in, fan_out)),
        "rgcn": lambda: layers.RGCNConv(fan_in, fan_out, RELATIONS, num_bases=BASES),
    }
    return makers[kind]()


def edges_of(framework: str, kind: str, dataset: Dataset, seed: int) -> tuple[Any, ...]:
    """What a `Network` takes: the graph as the framework has it, and relations drawn from the seed."""
    generator = torch.Generator().manual_seed(seed)
    kinds = (torch.randint(RELATIONS, (dataset.num_edges,), generator=generator),) if kind == "rgcn" else ()
    if framework == "pyg":
        return (dataset.edge_index, *kinds)
    import dgl

    return (dgl.graph(tuple(dataset.edge_index), num_nodes=dataset.num_nodes), *kinds)


__all__ = ["KINDS", "Network", "edges_of"]
