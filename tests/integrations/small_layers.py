"""Layers of DGL and PyG on one small graph, each as a function of its features, for tests of the way that they take to
a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

NODES, EDGES, WIDTH = 23, 90, 4


def edge_index() -> Tensor:
    """Edges in no order; the last node has none."""
    return torch.randint(0, NODES - 1, (2, EDGES), generator=torch.Generator().manual_seed(7))


def kinds() -> Tensor:
    return torch.arange(EDGES) % 3


def features(seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return (
        torch.randn(NODES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        .to(dtype)
        .requires_grad_()
    )


def pyg(make: Callable, *arguments: Callable):
    """A layer of PyG on the edges, and what it is called with beside."""

    def bound(dtype=torch.float64):
        from torch_geometric import nn as gnn

        torch.manual_seed(0)
        layer, edges, others = make(gnn).to(dtype), edge_index(), [each() for each in arguments]
        return list(layer.parameters()), lambda x: layer(x, edges, *others)

    return "pyg", bound


def dgl(make: Callable, *arguments: Callable):
    """The same of DGL."""

    def bound(dtype=torch.float64):
        import dgl
        import dgl.nn.pytorch as dglnn

        torch.manual_seed(0)
        edges = edge_index()
        layer, graph = make(dglnn).to(dtype), dgl.graph((edges[0], edges[1]), num_nodes=NODES)
        others = [each() for each in arguments]
        return list(layer.parameters()), lambda x: layer(graph, x, *others)

    return "dgl", bound


def pyg_hetero():
    def bound(dtype=torch.float64):
        from torch_geometric import nn as gnn

        torch.manual_seed(0)
        types = ("a", "to", "a"), ("a", "back", "a")
        layer = gnn.HeteroConv({name: gnn.SAGEConv(WIDTH, 4) for name in types}).to(dtype)
        edges = dict(zip(types, (edge_index(), edge_index().flip(0))))
        return list(layer.parameters()), lambda x: layer({"a": x}, edges)["a"]

    return "pyg", bound


def dgl_hetero():
    def bound(dtype=torch.float64):
        import dgl
        import dgl.nn.pytorch as dglnn

        torch.manual_seed(0)
        u, v = edge_index()
        graph = dgl.heterograph({("a", "on", "a"): (u, v), ("a", "back", "a"): (v, u)}, num_nodes_dict={"a": NODES})
        layer = dglnn.HeteroGraphConv(
            {name: dglnn.GraphConv(WIDTH, 4, allow_zero_in_degree=True) for name in ("on", "back")}
        )
        layer = layer.to(dtype)
        return list(layer.parameters()), lambda x: layer(graph, {"a": x})["a"]

    return "dgl", bound


def pyg_scatter():
    def bound(dtype=torch.float64):
        import torch_geometric.utils as utils

        index = edge_index()[1]

        def call(x):
            weights = utils.softmax(x[:, :2].repeat(4, 1)[:EDGES], index, num_nodes=NODES)
            return utils.scatter(weights, index, 0, NODES, "max")

        return [], call

    return "pyg", bound


LAYERS = {
    "pyg SAGE": pyg(lambda nn: nn.SAGEConv(WIDTH, 4)),
    "pyg GCN": pyg(lambda nn: nn.GCNConv(WIDTH, 4)),
    "pyg GAT": pyg(lambda nn: nn.GATConv(WIDTH, 4, heads=2)),
    "pyg transformer": pyg(lambda nn: nn.TransformerConv(WIDTH, 4, heads=2)),
    "pyg RGCN": pyg(lambda nn: nn.RGCNConv(WIDTH, 4, 3), kinds),
    "pyg hetero": pyg_hetero(),
    "pyg softmax and scatter": pyg_scatter(),
    "dgl SAGE": dgl(lambda nn: nn.SAGEConv(WIDTH, 4, "mean")),
    # with a norm DGL itself asks for values, those of degrees
    "dgl GCN": dgl(lambda nn: nn.GraphConv(WIDTH, 4, "none", allow_zero_in_degree=True)),
    "dgl GAT": dgl(lambda nn: nn.GATConv(WIDTH, 4, 2, allow_zero_in_degree=True)),
    "dgl GATv2": dgl(lambda nn: nn.GATv2Conv(WIDTH, 4, 2, allow_zero_in_degree=True)),
    "dgl RGCN": dgl(lambda nn: nn.RelGraphConv(WIDTH, 4, 3), kinds),
    "dgl hetero": dgl_hetero(),
}


def step(parameters: list[Tensor], call: Callable, x: Tensor, cotangent: Tensor | None) -> tuple[list[Tensor], Tensor]:
    out = call(x)
    if cotangent is None:
        cotangent = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    wanted = [x, *[p for p in parameters if p.requires_grad]]
    return [out.detach(), *torch.autograd.grad(out, wanted, cotangent, allow_unused=True)], cotangent
