"""DGL as lazy tensors see it: edges belong to a graph object, and an end is one of its sides."""

from __future__ import annotations

import torch

from ...ops.message.calls import run_edge_map
from ...ops.message.message_op import message_op
from ...structures.graph import Graph
from ..lazy import DEFERRED, End, Host, materialise
from ..scopes import transformed

_COPIES = (message_op("x0", ("row",)), message_op("x0", ("column",)))
_COUNTED = {"gather": "gsddmm", "edge_map": "gsddmm", "softmax": "edge_softmax_forward"}


def counted_as(reduce: str) -> str:
    """Return the name of DGL's operator under which a reduction is counted."""
    return "gspmm_mean" if reduce == "mean" else "gspmm"


class GraphEnd(End):
    """The destinations (side 0) or sources (side 1) of the edges of a graph."""

    __slots__ = ("graph", "side")

    def __init__(self, graph: Graph, side: int):
        self.graph, self.side, self.count, self.size = graph, side, graph.num_edges, graph.shape[side]
        self.key = (id(graph), side)

    def gather(self, x):
        if transformed() is None:
            return run_edge_map(_COPIES[self.side], self.graph, (x,))
        return x.index_select(0, self._nodes())

    def _nodes(self):
        """(count,) the node of every edge, in DGL's order of edges."""
        graph = self.graph
        nodes = graph.indices
        if self.side == 0:
            rows = torch.arange(self.size, dtype=nodes.dtype, device=nodes.device)
            nodes = rows.repeat_interleave(graph.in_degrees, output_size=self.count)
        return (
            nodes
            if graph.edge_ids is None
            else nodes.new_empty(self.count).index_copy_(0, graph.edge_ids.long(), nodes)
        )


class DglHost(Host):
    name, message = "dgl", "gsddmm"
    traced = False
    deferred, computed = DEFERRED, staticmethod(materialise)

    def graph(self, rows, columns):
        return rows.graph if rows.side == 0 else rows.graph.transpose()

    def either(self, first, second):
        return first.graph, first.side == 0

    def counted(self, operator):
        kind, _, reduce = operator.partition(".")
        if reduce:
            return counted_as(reduce)
        return _COUNTED.get(kind, kind)


HOST = DglHost()
