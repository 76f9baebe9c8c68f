"""Explainers of DGL: they differentiate a model, or ask it many times, and return numbers without gradients."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

import dgl
import dgl.nn.pytorch as dglnn
import torch
from torch import Tensor, nn

from tests.coverage.dgl.graphs import NODES, TYPED, square, typed
from tests.coverage.report import Bound, Case, features

IN, OUT, CLASSES = 4, 4, 4
SINGLE = (torch.float32,)  # masks and scores are float32
OF_DGL_2 = {"PGExplainer", "HeteroPGExplainer"}
"""Explainers that DGL 1 does not have. No case builds them."""


class Homogeneous(nn.Module):
    """Two convolutions and a readout; edge weights as the explainers want them."""

    def __init__(self, per_node: bool) -> None:
        super().__init__()
        self.first, self.second = dglnn.GraphConv(IN, OUT), dglnn.GraphConv(OUT, CLASSES)
        self.per_node = per_node

    def forward(self, graph: dgl.DGLGraph, feat: Tensor, eweight: Tensor | None = None) -> Tensor:
        x = self.first(graph, feat, edge_weight=eweight).relu()
        x = self.second(graph, x, edge_weight=eweight)
        with graph.local_scope():
            graph.ndata["x"] = x
            return x if self.per_node else dgl.mean_nodes(graph, "x")


class Heterogeneous(nn.Module):
    """A convolution per relation, then the scores of the nodes of type ``a``, or of the graph."""

    def __init__(self, per_node: bool) -> None:
        super().__init__()
        self.layer = nn.ModuleDict(
            {
                "_".join(each): dglnn.GraphConv(IN, CLASSES, "right", allow_zero_in_degree=True)
                for each in typed().canonical_etypes
            }
        )
        self.per_node = per_node

    def forward(self, graph: dgl.DGLGraph, feat: dict[str, Tensor], eweight: dict | None = None):
        results = []
        for relation in graph.canonical_etypes:
            source, _, target = relation
            if target == "a":
                weight = None if eweight is None else eweight[relation]
                results.append(
                    self.layer["_".join(relation)](graph[relation], (feat[source], feat[target]), edge_weight=weight)
                )
        scores = sum(results)
        return {"a": scores} if self.per_node else scores.mean(0, keepdim=True)


def case(name: str, model: Callable[[], nn.Module], call: Callable, **inputs: Tensor) -> Case:
    def quiet(m: nn.Module) -> tuple[Tensor, ...]:
        m.layer.eval()
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars
            return call(m)

    return Case(name, lambda: Bound(model(), **inputs), quiet, dtypes=SINGLE)


def flat(parts: dict) -> tuple[Tensor, ...]:
    return tuple(parts[key] for key in sorted(parts))


def _homogeneous() -> list[Case]:
    def node(m: nn.Module) -> tuple[Tensor, ...]:
        explainer = dglnn.GNNExplainer(m.layer, num_hops=2, num_epochs=5, log=False)
        _, _, nodes, edges = explainer.explain_node(3, square(), m.x.detach())
        return nodes, edges

    def graph(m: nn.Module) -> tuple[Tensor, ...]:
        return dglnn.GNNExplainer(m.layer, num_hops=2, num_epochs=5, log=False).explain_graph(square(), m.x.detach())

    def subgraph(m: nn.Module) -> Tensor:
        explainer = dglnn.SubgraphX(m.layer, 1, num_child=3, num_rollouts=2, node_min=5, shapley_steps=3)
        return explainer.explain_graph(square(), m.x.detach(), target_class=1)

    x = features(NODES, IN)
    return [
        case("GNNExplainer, node", lambda: Homogeneous(True), node, x=x),
        case("GNNExplainer, graph", lambda: Homogeneous(False), graph, x=x),
        case("SubgraphX", lambda: Homogeneous(False), subgraph, x=x),
    ]


def _heterogeneous() -> list[Case]:
    feats = lambda m: {name: getattr(m, name).detach() for name in TYPED}

    def node(m: nn.Module) -> tuple[Tensor, ...]:
        explainer = dglnn.HeteroGNNExplainer(m.layer, num_hops=1, num_epochs=5, log=False)
        _, _, nodes, edges = explainer.explain_node("a", 2, typed(), feats(m))
        return flat(nodes) + flat(edges)

    def graph(m: nn.Module) -> tuple[Tensor, ...]:
        explainer = dglnn.HeteroGNNExplainer(m.layer, num_hops=1, num_epochs=5, log=False)
        nodes, edges = explainer.explain_graph(typed(), feats(m))
        return flat(nodes) + flat(edges)

    def subgraph(m: nn.Module) -> tuple[Tensor, ...]:
        explainer = dglnn.HeteroSubgraphX(m.layer, 1, num_child=3, num_rollouts=2, node_min=6, shapley_steps=3)
        return flat(explainer.explain_graph(typed(), feats(m), target_class=1))

    inputs = {name: features(number, IN, seed=seed) for seed, (name, number) in enumerate(TYPED.items())}
    return [
        case("HeteroGNNExplainer, node", lambda: Heterogeneous(True), node, **inputs),
        case("HeteroGNNExplainer, graph", lambda: Heterogeneous(False), graph, **inputs),
        case("HeteroSubgraphX", lambda: Heterogeneous(False), subgraph, **inputs),
    ]


CASES = _homogeneous() + _heterogeneous()
