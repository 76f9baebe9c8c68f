"""``gsb.dgl_graph``: a DGL graph on the arrays of a ``Graph``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..structures.graph import Graph
from .core.substitutes.stand_ins import import_dgl

if TYPE_CHECKING:
    import dgl


def dgl_graph(graph: Graph, *, numbered: bool = True) -> dgl.DGLGraph:
    """A homogeneous DGL graph on the arrays of a graph: its in-edges (DGL's CSC) are those.

        graph = gsb.Graph.from_edge_index(edge_index, release=True)
        g = gsb.dgl_graph(graph, numbered=False)

    ``dgl.graph`` of int64 edges keeps these, and makes in-edges and out-edges of them, each with numbers of edges: 48
    bytes for each edge, and as much again in ``dgl.add_self_loop``. Under ``gsb.enable("dgl")`` this one takes what the
    ``Graph`` takes, 4 to 16. DGL makes other formats where its own functions ask for them.

    Args:
        graph: square, on the CPU. It lives at least as long as the result.
        numbered: whether DGL's edge e is edge e of ``graph``. With False edges are numbered as they lie in the rows of
            ``graph``, which takes no memory: for graphs without features of edges.

    Raises:
        TypeError: ``graph`` is no ``Graph``.
        ValueError: it is not square, or not on the CPU.
        ImportError: DGL is not installed.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"dgl_graph: expected a gsb.Graph, got {type(graph).__name__}")
    if graph.shape[0] != graph.shape[1] or graph.device.type != "cpu":
        raise ValueError(
            f"dgl_graph: the graph must be square and on the CPU, got shape {graph.shape} on {graph.device}; "
            "use graph.to('cpu'), or dgl.create_block for destinations that are no sources"
        )
    import_dgl()
    import dgl

    ids: Any = graph.edge_ids if numbered else None
    ids = graph.indices[:0] if ids is None else ids
    return dgl.graph(("csc", (graph.indptr, graph.indices, ids)), num_nodes=graph.shape[0], idtype=graph.indices.dtype)
