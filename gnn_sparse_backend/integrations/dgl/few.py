"""DGL's operators on graphs of a few edges: from its list of edges to kernels that read it (`ops.message.flat`).

A batch of molecules is a new graph, whose rows nobody has made. What is not here, for its types, sizes or operators,
goes on as on any graph.
"""

from __future__ import annotations

import torch
from dgl import heterograph_index
from torch import Tensor
from torch.nn import Parameter

from ...compiler.cache.bounded import shared
from ...ops.attention.flat import FlatSoftmax
from ...ops.core.listed import OutOfRange
from ...ops.message.flat import FLOATS, Flat, FlatAggregate, FlatMap
from ...ops.message.flat_extreme import FlatExtreme
from ...ops.message.message_op import MessageOp
from ...planner.cpu.listed import FLAT
from ...structures.edge_list import EdgeList
from ..scopes import current
from ..scopes.modes import transformed
from .operands import broadcast
from .structure import structures_of

_flats = shared("operators of DGL over few edges", 1024)
_PLAIN = (Tensor, Parameter)
MOST_EDGES = FLAT // 32
"""Edges up to which a graph is small whatever is computed on it."""


def edges_of(gidx) -> EdgeList | None:
    """The edges of an index of one edge type, in DGL's order; None of a large one, or with other integers."""
    structures, side = structures_of(gidx)
    if structures.edge_types != 1:
        return None
    structure = structures.of(0)
    if structure.listed is None:
        structure.listed = _listed(gidx, side)
    if structure.listed is False:
        return None
    return structure.listed.reversed() if side else structure.listed


def _listed(gidx, side: int) -> EdgeList | bool:
    if gidx.dtype != "int64" or not 0 < gidx.num_edges(0) <= FLAT:
        return False
    arrays = heterograph_index._CAPI_DGLHeteroEdges(gidx, 0, "eid")
    # DGL's own conversion takes four times as long, and is of a third array as well
    source, destination = (torch.from_dlpack(arrays(end).to_dlpack()) for end in (0, 1))
    if not source.is_cpu:
        return False
    first, second = gidx.metagraph.find_edge(0)
    edges = EdgeList(destination, source, (gidx.num_nodes(second), gidx.num_nodes(first)))
    return edges.reversed() if side else edges


def is_small(g) -> bool:
    """Whether nothing that is computed on a graph of one edge type is worth following."""
    gidx = g._graph
    structures, _ = structures_of(gidx)
    return structures.edge_types == 1 and gidx.num_edges(0) <= MOST_EDGES


def aggregated(g, of: MessageOp, op: str, operands: tuple[Tensor, ...]) -> Tensor | None:
    """The reduction of a message of DGL's operands, of sources and of edges; None where it is not of few edges."""
    if (edges := _edges_for(g._graph, of, op, operands)) is None:
        return None
    key = of, operands[0].dtype, *(x.shape[1:] for x in operands)
    flat = _flats.get(key)
    if flat is None:
        likes = [x.detach()[:1] for x in operands]
        if of.ties is not None:
            flat = FlatExtreme(of, likes[0])
        else:
            flat = FlatAggregate(of, likes) if FlatAggregate.serves(of, likes) else False
        _flats.keep(key, flat)
    return _run(flat, edges, operands)


def mapped(g, of: MessageOp, op: str, operands: tuple[Tensor, ...], reduced: tuple[bool, ...]) -> Tensor | None:
    """The message of every edge; None as above."""
    if (edges := _edges_for(g._graph, of, op, operands)) is None:
        return None
    key = of, reduced, operands[0].dtype, *(x.shape[1:] for x in operands)
    flat = _flats.get(key)
    if flat is None:
        flat = _flats.keep(key, FlatMap(of, [x.detach()[:1] for x in operands], reduced))
    return _run(flat, edges, operands)


def softmaxed(gidx, scores: Tensor, norm_by: str) -> Tensor | None:
    """The softmax of scores over the edges of each destination, or source; None as above."""
    edges = edges_of(gidx) if _is_plain(scores) and _is_eager() else None
    if edges is None or scores.shape[0] != edges.row.shape[0] or scores.numel() > FLAT:
        return None
    key = "softmax", scores.dtype, scores.shape[1:]
    flat = _flats.get(key)
    if flat is None:
        flat = _flats.keep(key, FlatSoftmax(scores.detach()[:1]))
    return _run(flat, edges.reversed() if norm_by == "src" else edges, (scores,))


def _edges_for(gidx, of: MessageOp, op: str, operands: tuple[Tensor, ...]) -> EdgeList | None:
    if not all(map(_is_plain, operands)) or not _is_eager():
        return None
    edges = edges_of(gidx)
    if edges is None:
        return None
    count, shape = edges.row.shape[0], edges.shape
    first = operands[0]
    for x, place in zip(operands, of.places):
        rows = count if place == "edge" else shape[place == "column"]
        if x.shape[0] != rows or x.dtype is not first.dtype or count * x.shape[1:].numel() > FLAT:
            return None
    if len(operands) == 2 and not broadcast(op, first.shape[1:], operands[1].shape[1:]):
        return None
    return edges


def _is_plain(x) -> bool:
    return (
        type(x) in _PLAIN
        and x.dtype in FLOATS
        and x.is_cpu
        and x.layout is torch.strided
        and x.dim() > 0
        and 0 not in x.shape
    )


def _is_eager() -> bool:
    return current() is None and transformed() is None and not torch.is_autocast_enabled("cpu")


def _run(flat: Flat | bool, edges: EdgeList, operands: tuple[Tensor, ...]) -> Tensor | None:
    if flat is False:
        return None
    try:
        return flat(edges, operands)
    except OutOfRange:
        return None
