"""``edge_softmax`` of DGL: softmax over the edges into each destination, or out of each source.

Taken over above DGL's autograd, and below it (``_edge_softmax_forward`` and ``_backward``) for what comes by there: a
part of the edges, autocast, and models recorded before the backend was enabled. On several edge types at once DGL
composes it of ``_gspmm_hetero`` and ``_gsddmm_hetero``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from dgl.base import is_all
from torch import Tensor

from ...ops.attention.operators import softmax_edges
from ...ops.attention.softmax import run_edge_softmax, run_edge_softmax_backward
from ..core.counters import fallback, ours
from ..lazy import LazyTensor, value
from .lazy_edges import asks_for_attention, computed, softmax
from .operands import refuse
from .structure import only_graph_of

FORWARD, BACKWARD = "edge_softmax_forward", "edge_softmax_backward"


def make(original: Callable) -> Callable:
    """The function that ``dgl.ops.edge_softmax`` ends in: ``(gidx, logits, eids, norm_by) -> (E, ...)``."""

    def edge_softmax_internal(gidx, logits, eids, norm_by):
        if type(logits) is LazyTensor:
            weights = _lazy(gidx, logits, eids, norm_by, original)
            if weights is not None:
                return value(weights, "it is returned") if asks_for_attention(sys._getframe(1)) else weights
            logits = computed(logits, "edge_softmax")
        if is_all(eids) and not torch.is_autocast_enabled():
            graph = graph_for(gidx, logits)
            if type(graph) is not str:
                ours("dgl", FORWARD)
                return softmax_edges(graph.transpose() if norm_by == "src" else graph, logits)
        return original(gidx, logits, eids=eids, norm_by=norm_by)

    return edge_softmax_internal


def make_hetero(original: Callable) -> Callable:
    """The function that ``dgl.ops.edge_softmax`` of several edge types ends in."""

    def edge_softmax_hetero_internal(gidx, eids, norm_by, *logits):
        return original(gidx, eids, norm_by, *computed(logits, "edge_softmax of several edge types"))

    return edge_softmax_hetero_internal


def _lazy(gidx, logits: LazyTensor, eids, norm_by: str, original: Callable) -> LazyTensor | None:
    """The softmax as a lazy tensor; None if the scores have to be computed first."""
    if not is_all(eids) or torch.is_autocast_enabled():
        return None
    graph = only_graph_of(gidx)
    if graph is None:
        return None
    return softmax(
        graph, logits, int(norm_by == "src"), lambda scores: original(gidx, scores, eids=eids, norm_by=norm_by)
    )


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
    if graph.device != x.device:
        return "graph on another device"
    return "number of rows" if x.shape[0] != graph.num_edges else graph
