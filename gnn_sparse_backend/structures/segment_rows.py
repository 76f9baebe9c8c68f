"""Segments, or all edges of a graph, as the rows of a graph, whose edges are what these consist of."""

from __future__ import annotations

import numpy as np
import torch

from ..runtime import devices
from .build import index_dtype
from .derived import fact
from .graph import Graph
from .segments import Segments


@fact
def rows_graph(segments: Segments) -> Graph:
    """Segments as destinations, rows as edges, all from one source.

    The indices are an array of zeros, which nobody reads. NumPy takes them from pages that the system has already
    zeroed, and which cost nothing as long as nobody does.
    """
    offsets, count, shape = segments.offsets, segments.num_rows, (segments.num_segments, 1)
    dtype = index_dtype(shape, count)
    if devices.on_cpu(offsets.device):
        indices = torch.from_numpy(np.zeros(count, np.int32 if dtype == torch.int32 else np.int64))
    else:
        indices = torch.zeros(count, dtype=dtype, device=offsets.device)
    if segments.unsynchronised:
        return Graph._unsynchronised(offsets, indices, segments.order, shape, count)
    return Graph.from_csr(offsets, indices, shape, segments.order, trusted=True)


@fact
def edges_in_one_row(graph) -> Graph:
    """The graph of all edges, in the user's order, as those into one node: for what reads neither end of them."""
    return Graph._of_one_row(graph.num_edges, graph.some_index)
