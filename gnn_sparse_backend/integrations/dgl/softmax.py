"""``edge_softmax`` of DGL: softmax over the edges into each destination, or out of each source.

Taken over above DGL's autograd, and below it (``_edge_softmax_forward`` and ``_backward``) for what comes by there: a
part of the edges, autocast, and models recorded before the backend was enabled. On several edge types at once DGL
composes it of ``_gspmm_hetero`` and ``_gsddmm_hetero``.
"""
from __future__ import annotations

from collections.abc import Callable

import torch
from dgl.base import is_all
from torch import Tensor

from ...ops.edge_softmax import run_edge_softmax, run_edge_softmax_backward, softmax_edges
from ..counters import fallback, ours
from .operands import refuse
from .structure import only_graph_of

FORWARD, BACKWARD = "edge_softmax_forward", "edge_softmax_backward"


def make(original: Callable) -> Callable:
    """The function that ``dgl.ops.edge_softmax`` ends in: ``(gidx, logits, eids, norm_by) -> (E, ...)``."""

    def edge_softmax_internal(gidx, logits, eids, norm_by):
        if is_all(eids) and not torch.is_autocast_enabled():
            graph = graph_for(gidx, logits)
            if type(graph) is not str:
                ours("dgl", FORWARD)
                return softmax_edges(graph.transpose() if norm_by == "src" else graph, logits)
        return original(gidx, logits, eids=eids, norm_by=norm_by)

    return edge_softmax_internal


def make_forward(original: Callable) -> Callable:
    """``_edge_softmax_forward``: ``(gidx, e, op) -> (E, ...)`` without gradients."""

    def _edge_softmax_forward(gidx, e, op):
        graph = graph_for(gidx, e) if op == "copy_rhs" else "unknown op"
        if type(graph) is str:
            fallback("dgl", FORWARD, graph)
            return original(gidx, e, op)
        ours("dgl", FORWARD)
        return run_edge_softmax(graph, e)

    return _edge_softmax_forward


def make_backward(original: Callable) -> Callable:
    """``_edge_softmax_backward``: ``(gidx, out, sds) -> (E, ...)`` with sds = out * gradient."""

    def _edge_softmax_backward(gidx, out, sds):
        graph = graph_for(gidx, out, sds) if out.shape == sds.shape else "shapes differ"
        if type(graph) is str:
            fallback("dgl", BACKWARD, graph)
            return original(gidx, out, sds)
        ours("dgl", BACKWARD)
        return run_edge_softmax_backward(graph, out, sds)

    return _edge_softmax_backward


def graph_for(gidx, x: Tensor, y: Tensor | None = None):
    """The graph of an index for these tensors of one row per edge, or why they are not ours."""
    reason = refuse(x, y)
    if reason is not None:
        return reason
    graph = only_graph_of(gidx)
    if graph is None:
        return "several edge types"
    if not graph.indices.is_cpu:
        return "graph on another device"
    return "number of rows" if x.shape[0] != graph.num_edges else graph
