"""Networks that are exported, with arguments on a small and on another graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, MessagePassing, RGCNConv, SAGEConv

import gnn_sparse_backend as gsb

WIDTH, HIDDEN, CLASSES, RELATIONS = 6, 8, 3, 3


class TwoLayers(nn.Module):
    """Two layers on one edge index."""

    def __init__(self, first: nn.Module, second: nn.Module):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.second(self.first(x, edges).relu(), edges)


class OfRelations(TwoLayers):
    """Two layers on edges of several relations."""

    def forward(self, x: Tensor, edges: Tensor, relations: Tensor) -> Tensor:
        return self.second(self.first(x, edges, relations).relu(), edges, relations)


class Differences(MessagePassing):
    """The largest difference to a neighbour, of a linear map."""

    def __init__(self, width: int, out: int):
        super().__init__(aggr="max")
        self.map = nn.Linear(width, out)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.propagate(edges, x=self.map(x))

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return (x_j - x_i).relu()


class Maps(Differences):
    """A linear map of what both ends have beside each other, which no operator is for; its maximum is."""

    def __init__(self, width: int, out: int):
        super().__init__(width, out)
        self.both = nn.Linear(2 * out, out)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.both(torch.cat([x_i, x_j], -1))


class ByHand(nn.Module):
    """Gathers and a scatter of no framework."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = self.map(x)
        message = x[edges[0]] * x[edges[1]].sigmoid()
        return torch.zeros_like(x).index_add(0, edges[1], message)


class Calls(nn.Module):
    """Calls operators on a graph that it holds."""

    def __init__(self, graph: gsb.Graph):
        super().__init__()
        self.graph, self.map = graph, nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.map(x)
        weight = gsb.edge_softmax(self.graph, gsb.sddmm(self.graph, x, x))
        return gsb.spmm(self.graph, x, weight)


class Voxels(nn.Module):
    """Sparse convolutions down and up again, of features at coordinates in the plane."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(gsb.nn.SubMConv(WIDTH, HIDDEN, 3, dim=2), gsb.nn.BatchNorm(HIDDEN), gsb.nn.ReLU())
        self.down = gsb.nn.SparseConv(HIDDEN, HIDDEN, 2, 2, groups=2, dim=2)
        self.up = gsb.nn.SparseConvTranspose(HIDDEN, CLASSES, 2, 2, dim=2)
        self.pool = gsb.nn.SparseMaxPool(3, 2, dim=2)

    def forward(self, features: Tensor, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(gsb.nn.SparseTensor(features, coordinates))
        return self.up(self.down(x)).features, self.pool(x).features


def voxels(count: int) -> tuple[Tensor, Tensor]:
    """Features and coordinates of different sites, in two batches."""
    cells = torch.randperm(2 * 12 * 12)[:count]
    return torch.randn(count, WIDTH), torch.stack((cells // 144, cells // 12 % 12, cells % 12), 1)


def networks() -> dict[str, nn.Module]:
    """Networks by name, the same at each call."""
    torch.manual_seed(7)
    return {
        "SAGE": TwoLayers(SAGEConv(WIDTH, HIDDEN), SAGEConv(HIDDEN, CLASSES)),
        "GCN": TwoLayers(GCNConv(WIDTH, HIDDEN), GCNConv(HIDDEN, CLASSES)),
        "GAT": TwoLayers(GATConv(WIDTH, HIDDEN // 2, heads=2), GATConv(HIDDEN, CLASSES)),
        "GIN": TwoLayers(GINConv(nn.Linear(WIDTH, HIDDEN)), GINConv(nn.Linear(HIDDEN, CLASSES))),
        "RGCN": OfRelations(
            RGCNConv(WIDTH, HIDDEN, RELATIONS), RGCNConv(HIDDEN, CLASSES, RELATIONS, num_bases=2, aggr="add")
        ),
        "blocks": OfRelations(
            RGCNConv(WIDTH, HIDDEN, RELATIONS, num_blocks=2), RGCNConv(HIDDEN, CLASSES, RELATIONS, root_weight=False)
        ),
        "own": TwoLayers(Differences(WIDTH, HIDDEN), Maps(HIDDEN, CLASSES)),
        "by hand": ByHand(),
    }


def arguments(name: str, nodes: int, edges: int) -> tuple[Tensor, ...]:
    """Features and edges, and relations for networks that take them."""
    x, index = torch.randn(nodes, WIDTH), torch.randint(nodes, (2, edges))
    return (x, index, torch.randint(RELATIONS, (edges,))) if name in ("RGCN", "blocks") else (x, index)
