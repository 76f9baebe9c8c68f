"""Layers of PyG, and message passing that users write, each with what it has in between."""

from __future__ import annotations

from functools import partial

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.utils import softmax

from tests.integrations.equality.layer import EDGES, NODES, WIDTH, Build, Layer, Watch, normal, random_ends


class FromSource(pyg.MessagePassing):
    """A message of the source alone."""

    def __init__(self, formula, aggr="sum"):
        super().__init__(aggr=aggr)
        self.formula, self.watch = formula, Watch()

    def forward(self, x, edge_index, w):
        return self.propagate(edge_index, x=x, w=w)

    def message(self, x_j, w):
        x_j = self.watch("x_j", x_j)
        return self.watch("message", self.formula(x_j, w))


class FromBoth(FromSource):
    """A message of source, destination and edge."""

    def message(self, x_i, x_j, w):
        x_i, x_j = self.watch("x_i", x_i), self.watch("x_j", x_j)
        return self.watch("message", self.formula(x_i, x_j, w))


class Attention(pyg.MessagePassing):  # not of a class above: PyG gives that a propagate of its own arguments
    """An attention that keeps its weights."""

    def __init__(self, keep=True):
        super().__init__()
        self.lin, self.vector = nn.Linear(WIDTH, WIDTH, dtype=torch.float64), nn.Parameter(normal(2, WIDTH, seed=5))
        self.keep, self.alpha, self.watch = keep, None, Watch()

    def forward(self, x, edge_index, w):
        x = self.lin(x)
        left, right = x @ self.vector[:1].T, x @ self.vector[1:].T
        return self.propagate(edge_index, x=x, left=left, right=right)

    def message(self, x_j, left_i, right_j, index, ptr, size_i):
        score = self.watch("score", nn.functional.leaky_relu(left_i + right_j, 0.2))
        alpha = self.watch("alpha", softmax(score, index, ptr, size_i))
        if self.keep:
            self.alpha = alpha
        return self.watch("message", alpha * self.watch("x_j", x_j))


class KeepsNeighbours(FromSource):
    """A module that keeps its gathered features, and returns them beside its result."""

    def forward(self, x, edge_index, w):
        out = self.propagate(edge_index, x=x, w=w)
        return out, self.kept

    def message(self, x_j, w):
        self.kept = self.watch("x_j", x_j)
        return w * x_j


SOURCE = {
    "copy": lambda x_j, w: x_j,
    "weighted": lambda x_j, w: w * x_j,
    "exp": lambda x_j, w: (x_j * 0.3).exp() + w,
    "where": lambda x_j, w: torch.where(x_j > 0, x_j, w * x_j),
    "matmul": lambda x_j, w: x_j @ torch.full((WIDTH, WIDTH), 0.3, dtype=x_j.dtype) + w,
    "view": lambda x_j, w: (x_j.view(-1, 2, WIDTH // 2) * w.unsqueeze(-1)).flatten(1),
    "rows": lambda x_j, w: torch.cat([x_j[:5] * 2, x_j[5:]]) * w,
}
BOTH = {
    "sub": lambda x_i, x_j, w: x_j - x_i,
    "cat": lambda x_i, x_j, w: torch.cat([x_i, x_j - x_i, w], -1),
    "norm": lambda x_i, x_j, w: (x_j - x_i) / ((x_j - x_i).norm(dim=-1, keepdim=True) + 1),
    "maximum": lambda x_i, x_j, w: torch.maximum(x_i, x_j * w),
    "dot": lambda x_i, x_j, w: (x_i * x_j).sum(-1, keepdim=True).sigmoid() * x_j,
    "leaky": lambda x_i, x_j, w: nn.functional.leaky_relu(x_i + x_j, 0.2) * w,
    "distance": lambda x_i, x_j, w: (-((x_i - x_j) ** 2).sum(-1, keepdim=True)).exp() * x_j,
}
AGGREGATIONS = ("sum", "mean", "max", "mul")


def own(make) -> Layer:
    """A module of the classes above; each has its gathered features and its message in between."""
    torch.manual_seed(1)
    module, edge_index = make().double(), torch.stack(random_ends())

    def forward(watch, inputs):
        module.watch = watch
        return module(inputs["x"], edge_index, inputs["w"])

    return Layer({"x": normal(NODES, WIDTH), "w": normal(EDGES, 1, seed=2)}, forward, module)


def library(make, edges: tuple[int, ...] | None = None, name: str = "edge_attr") -> Layer:
    """A layer of PyG's own; it has in between what its hooks on messages and edge updates are told.

    edges: the shape of the features of the edges, if it takes any, and name as what.
    """
    torch.manual_seed(1)
    module, edge_index, told = make().double(), torch.stack(random_ends()), Watch()
    inputs = {"x": normal(NODES, WIDTH)}
    if edges is not None:
        inputs["edges"] = normal(EDGES, *edges, seed=2)

    def before(hooked, arguments):
        found = arguments[0]
        for key in ("x_i", "x_j"):
            if isinstance(found.get(key), torch.Tensor):
                found[key] = told(key, found[key])

    def after(hooked, arguments, out):
        return told("message", out) if isinstance(out, torch.Tensor) else None

    def forward(watch, inputs):
        nonlocal told
        told, handles = watch, []
        if watch.hooked:
            for part in module.modules():
                if isinstance(part, pyg.MessagePassing):
                    handles += [part.register_message_forward_pre_hook(before)]
                    handles += [part.register_message_forward_hook(after)]
                    handles += [part.register_edge_update_forward_hook(after)]
        try:
            return module(inputs["x"], edge_index, **({name: inputs["edges"]} if "edges" in inputs else {}))
        finally:
            for handle in handles:
                handle.remove()

    return Layer(inputs, forward, module)


def perceptron(first: int = WIDTH, last: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Linear(first, 6), nn.ReLU(), nn.Linear(6, last))


def pna():
    degrees = torch.bincount(torch.bincount(random_ends()[1], minlength=NODES))
    return pyg.PNAConv(WIDTH, WIDTH, ["mean", "min", "max", "std"], ["identity", "amplification"], degrees)


LIBRARY: dict[str, Build] = {
    "GCNConv": partial(library, lambda: pyg.GCNConv(WIDTH, 3)),
    "GCNConv weighted": partial(library, lambda: pyg.GCNConv(WIDTH, 3, normalize=False), (), "edge_weight"),
    "GINConv": partial(library, lambda: pyg.GINConv(perceptron(), train_eps=True)),
    "GINEConv": partial(library, lambda: pyg.GINEConv(perceptron(), train_eps=True), (WIDTH,)),
    "SAGEConv": partial(library, lambda: pyg.SAGEConv(WIDTH, 3)),
    "SAGEConv max": partial(library, lambda: pyg.SAGEConv(WIDTH, 3, aggr="max")),
    "SAGEConv project": partial(library, lambda: pyg.SAGEConv(WIDTH, 3, project=True)),
    "GATConv": partial(library, lambda: pyg.GATConv(WIDTH, 3, heads=2)),
    "GATConv edges": partial(library, lambda: pyg.GATConv(WIDTH, 3, heads=2, edge_dim=3), (3,)),
    "GATv2Conv": partial(library, lambda: pyg.GATv2Conv(WIDTH, 3, heads=2)),
    "GATv2Conv edges": partial(library, lambda: pyg.GATv2Conv(WIDTH, 3, heads=2, edge_dim=3, dropout=0.3), (3,)),
    "TransformerConv": partial(library, lambda: pyg.TransformerConv(WIDTH, 3, heads=2, edge_dim=3), (3,)),
    "EdgeConv": partial(library, lambda: pyg.EdgeConv(perceptron(2 * WIDTH))),
    "GENConv": partial(library, lambda: pyg.GENConv(WIDTH, 3, learn_t=True)),
    "GINEConv plain": partial(library, lambda: pyg.GINEConv(nn.Linear(WIDTH, WIDTH)), (WIDTH,)),
    "GENConv plain": partial(library, lambda: pyg.GENConv(WIDTH, WIDTH)),
    "PNAConv": partial(library, pna),
    "CGConv": partial(library, lambda: pyg.CGConv(WIDTH, 3), (3,)),
    "GatedGraphConv": partial(library, lambda: pyg.GatedGraphConv(WIDTH, 2)),
    "ResGatedGraphConv": partial(library, lambda: pyg.ResGatedGraphConv(WIDTH, 3)),
    "SimpleConv": partial(library, lambda: pyg.SimpleConv("sum"), (), "edge_weight"),
    "SimpleConv max": partial(library, lambda: pyg.SimpleConv("max"), (), "edge_weight"),
    "SimpleConv mul": partial(library, lambda: pyg.SimpleConv("mul"), (), "edge_weight"),
    "NNConv": partial(library, lambda: pyg.NNConv(WIDTH, 3, perceptron(2, WIDTH * 3)), (2,)),
    "GeneralConv": partial(library, lambda: pyg.GeneralConv(WIDTH, 3, attention=True, heads=2)),
}
OWN: dict[str, Build] = {
    **{f"own {name}": partial(own, partial(FromSource, formula)) for name, formula in SOURCE.items()},
    **{f"own {name}": partial(own, partial(FromBoth, formula)) for name, formula in BOTH.items()},
    **{f"own {aggr}": partial(own, partial(FromSource, SOURCE["weighted"], aggr)) for aggr in AGGREGATIONS[1:]},
    "own cat max": partial(own, partial(FromBoth, BOTH["cat"], "max")),
    "own sub mean": partial(own, partial(FromBoth, BOTH["sub"], "mean")),
    "own attention": partial(own, Attention),
    "own attention, not kept": partial(own, partial(Attention, keep=False)),
    "own that returns x_j": partial(own, partial(KeepsNeighbours, None)),
}
LAYERS: dict[str, Build] = {**LIBRARY, **OWN}
