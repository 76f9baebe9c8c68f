"""GraphSAGE and RGCN on the blocks of DGL's samplers. Nothing here knows of the backend."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import dgl
import torch
from dgl.nn import GraphConv, HeteroGraphConv, SAGEConv
from torch import Tensor, nn


class Network(nn.Module):
    """Layers with ReLU between them, a block for each."""

    def __init__(self, layers: Iterable[nn.Module]):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, blocks: Sequence[dgl.DGLGraph], x: Tensor) -> Tensor:
        for layer, block in zip(self.layers[:-1], blocks):
            x = torch.relu(layer(block, x))
        return self.layers[-1](blocks[-1], x)


class SAGE(Network):
    """SAGEConv layers with the mean of neighbours."""

    def __init__(self, widths: Sequence[int]):
        super().__init__(SAGEConv(i, o, "mean") for i, o in itertools.pairwise(widths))


class RelationalLayer(nn.Module):
    """The sum over relations of the mean of neighbours times the relation's matrix, and a matrix for the node itself
    (Schlichtkrull et al., ESWC 2018).
    """

    def __init__(self, relations: Sequence[str], wide: int, out: int):
        super().__init__()
        self.itself = nn.Linear(wide, out)
        self.relations = HeteroGraphConv(
            {name: GraphConv(wide, out, norm="right", bias=False, allow_zero_in_degree=True) for name in relations},
            aggregate="sum",
        )

    def forward(self, block: dgl.DGLGraph, x: Tensor) -> Tensor:
        own = x[: block.num_dst_nodes()]
        given = ({"node": x}, {"node": own})
        return self.itself(own) + self.relations(block, given)["node"]


class RGCN(Network):
    """Relational layers."""

    def __init__(self, relations: Sequence[str], widths: Sequence[int]):
        super().__init__(RelationalLayer(relations, i, o) for i, o in itertools.pairwise(widths))
