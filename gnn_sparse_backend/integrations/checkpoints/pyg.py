"""Layers of PyG that chunks of rows can compute: SAGEConv, GraphConv, GCNConv and GATConv, as they are by default."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv, GraphConv, SAGEConv
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from ...ops.chunked.gat import Heads, gat
from ...ops.chunked.mapped_sum import Neighbours, mapped_sum
from ...ops.chunked.slices import has_loops
from ...structures.facts import InverseInDegrees
from ...structures.graph import Graph
from ..core.graphs import GRAPHS
from ..pyg.layers import has_hooks, is_rerouted
from .form import Form, is_large

_MEANS = {MeanAggregation: True, SumAggregation: False}


def form_of(layer: Any, args: tuple, kwargs: dict[str, Any]) -> Form | None:
    """The call of a layer by chunks of rows; None where it is another kind of call, or small."""
    make = _FORMS.get(type(layer))
    if make is None or kwargs or len(args) != 2 or is_rerouted(layer) or has_hooks(layer):
        return None
    x, edge_index = args
    if type(edge_index) is not Tensor or edge_index.dtype is not torch.int64 or edge_index.shape[:1] != (2,):
        return None
    if edge_index.dim() != 2 or edge_index.layout is not torch.strided or not edge_index.is_cpu:
        return None
    found: Form | None = make(layer, x, edge_index)
    return found


def _graph(x: Tensor, edge_index: Tensor) -> Graph:
    nodes = x.shape[0]
    return GRAPHS.find("coo", edge_index[1], edge_index[0], (nodes, nodes))


def _neighbours(layer: Any, graph: Graph, dtype: torch.dtype) -> Neighbours | None:
    """The sums or means of a layer; None of other aggregations."""
    mean = _MEANS.get(type(layer.aggr_module))
    if mean is None:
        return None
    return Neighbours(graph, graph.derived(InverseInDegrees(dtype)).unsqueeze(1) if mean else None)


def _sage(layer: SAGEConv, x: Any, edge_index: Tensor) -> Form | None:
    if layer.project or layer.normalize or not is_large(x, *layer.lin_l.weight.shape):
        return None
    if (of := _neighbours(layer, _graph(x, edge_index), x.dtype)) is None:
        return None
    root = layer.lin_r.weight if layer.root_weight else None
    return lambda stored: mapped_sum(of, x, layer.lin_l.weight, root, layer.lin_l.bias, stored)


def _graph_conv(layer: GraphConv, x: Any, edge_index: Tensor) -> Form | None:
    if not is_large(x, *layer.lin_rel.weight.shape):
        return None
    if (of := _neighbours(layer, _graph(x, edge_index), x.dtype)) is None:
        return None
    return lambda stored: mapped_sum(of, x, layer.lin_rel.weight, layer.lin_root.weight, layer.lin_rel.bias, stored)


def _gcn(layer: GCNConv, x: Any, edge_index: Tensor) -> Form | None:
    if not layer.normalize or layer.cached or layer.improved or not is_large(x, *layer.lin.weight.shape):
        return None
    graph, loops = _graph(x, edge_index), layer.add_self_loops
    if loops and has_loops(graph):
        return None
    degrees = graph.in_degrees.to(x.dtype).unsqueeze(1) + float(loops)
    scale = degrees.rsqrt().masked_fill_(degrees == 0, 0)
    of = Neighbours(graph, scale, scale, degrees.reciprocal() if loops else None)
    return lambda stored: mapped_sum(of, x, layer.lin.weight, None, layer.bias, stored)


def _gat(layer: GATConv, x: Any, edge_index: Tensor) -> Form | None:
    plain = layer.lin is not None and layer.res is None and layer.edge_dim is None and layer.concat
    if not plain or (layer.training and layer.dropout) or not is_large(x, *layer.lin.weight.shape):
        return None
    graph = _graph(x, edge_index)
    if layer.add_self_loops and has_loops(graph):
        return None
    of = Heads(graph, layer.heads, float(layer.negative_slope), layer.add_self_loops)
    source, destination = layer.att_src[0], layer.att_dst[0]
    return lambda stored: gat(of, x, layer.lin.weight, source, destination, layer.bias, stored)


_FORMS: dict[type, Any] = {SAGEConv: _sage, GraphConv: _graph_conv, GCNConv: _gcn, GATConv: _gat}
