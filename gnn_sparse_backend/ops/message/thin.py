"""Few edges into very many rows that would have to be copied: only the rows of the edges are.

Rows that are a view (``expand``, transposed, every second column) are copied before a kernel reads them. Where there
are many rows for each edge, those of the edges are gathered instead, one for each, and the graph has these as columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...runtime.layout import is_ready
from ...structures.derived import fact

MANY = 8
"""Rows for each edge from which on those of the edges alone are copied."""


@fact
def thin(graph):
    """The graph whose columns are the edges, in the order of its non-zeros."""
    from ...structures.graph import Graph

    columns = torch.arange(graph.num_edges, dtype=graph.indices.dtype, device=graph.indices.device)
    shape = graph.shape[0], graph.num_edges
    return Graph.from_csr(graph.indptr, columns, shape, graph.edge_ids, trusted=True)


def is_thin(graph) -> bool:
    """Whether there are very many columns for each edge."""
    return bool(0 < graph.num_edges * MANY <= graph.shape[1])


def gathered(graph, places: Sequence[str], operands: Sequence[Tensor | None]) -> tuple | None:
    """(graph, operands) with the columns of the edges alone; None where no copy is saved. The graph `is_thin`."""
    columns = [x for x, place in zip(operands, places) if place == "column" and x is not None]
    if all(map(is_ready, columns)):
        return None
    rows = graph.indices.long()
    given = [x[rows] if place == "column" and x is not None else x for x, place in zip(operands, places)]
    return thin(graph), given
