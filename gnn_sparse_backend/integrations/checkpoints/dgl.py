"""Layers of DGL that chunks of rows can compute: SAGEConv of means, and GraphConv."""

from __future__ import annotations

from typing import Any

from dgl import DGLGraph
from dgl.nn import GraphConv, SAGEConv
from torch import Tensor

from ...ops.chunked.mapped_sum import Neighbours, mapped_sum
from ...structures.facts import InverseInDegrees
from ...structures.graph import Graph
from ..dgl.structure import only_graph_of
from .form import Form, is_large


def form_of(layer: Any, args: tuple, kwargs: dict[str, Any]) -> Form | None:
    """The call of a layer by chunks of rows; None where it is another kind of call, or small."""
    make = _FORMS.get(type(layer))
    if make is None or kwargs or len(args) != 2 or type(args[0]) is not DGLGraph:
        return None
    g, x = args
    found: Form | None = make(layer, g, x)
    return found


def _square(g: DGLGraph) -> Graph | None:
    graph = only_graph_of(g._graph)
    return graph if graph is not None and graph.shape[0] == graph.shape[1] else None


def _sage(layer: SAGEConv, g: DGLGraph, x: Any) -> Form | None:
    weight = layer.fc_neigh.weight
    if layer._aggre_type != "mean" or (layer.training and layer.feat_drop.p) or not is_large(x, *weight.shape):
        return None
    if layer.norm is not None or layer.activation is not None or (graph := _square(g)) is None:
        return None
    of, own = Neighbours(graph, graph.derived(InverseInDegrees(x.dtype)).unsqueeze(1)), layer.fc_self
    return lambda stored: mapped_sum(of, x, weight, own.weight, own.bias, stored)


def _graph_conv(layer: GraphConv, g: DGLGraph, x: Any) -> Form | None:
    if layer.weight is None or layer._activation is not None or not is_large(x, *layer.weight.shape):
        return None
    graph = _square(g)
    if graph is None or not (layer._allow_zero_in_degree or int(graph.in_degrees.min())):
        return None
    left, right = _POWERS[layer._norm]
    of = Neighbours(graph, _power(graph, left, x), _power(graph.transpose(), right, x))
    return lambda stored: mapped_sum(of, x, layer.weight.t(), None, layer.bias, stored)


_POWERS = {"both": (-0.5, -0.5), "right": (-1.0, 0.0), "left": (0.0, -1.0), "none": (0.0, 0.0)}
"""Powers of in-degrees and of out-degrees, by the norm of a GraphConv."""


def _power(graph: Graph, exponent: float, x: Tensor) -> Tensor | None:
    return graph.in_degrees.clamp(min=1).to(x.dtype).pow_(exponent).unsqueeze(1) if exponent else None


_FORMS: dict[type, Any] = {SAGEConv: _sage, GraphConv: _graph_conv}
