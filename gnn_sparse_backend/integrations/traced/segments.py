"""Segments as compiled programs know them: pointers and a number of rows. The ``Graph`` is found at run time.

gsb::aggregate_of_segments, edge_map_of_segments, segment_softmax_of_segments, ...: as those on a `Graph`
"""

from __future__ import annotations

from torch import Tensor

from ...ops.attention.operators import EDGE_SOFTMAX, EDGE_SOFTMAX_BACKWARD, SEGMENT_SOFTMAX
from ...ops.core.library import register_for
from ...ops.core.traced import as_indices
from ...ops.message.operators import AGGREGATE, EDGE_MAP
from ...ops.message.reductions.recurrence import RECURRENCE
from ...structures.graph import Graph
from ..core.counters import ours
from ..core.graphs import GRAPHS
from .edges import vector
from .matching import WHOLE


def _graph(arguments: tuple, operands) -> Graph:
    """The graph whose rows are the segments, which counts the call. Raises ValueError for pointers that give none."""
    pointers, row, count, framework, counted = arguments
    pointers = vector(pointers, row)
    graph = GRAPHS.find("segments", pointers, pointers, (max(pointers.numel() - 1, 0), count))
    if counted:
        ours(framework, counted)
    return graph


def _shapes(arguments: tuple) -> tuple:
    pointers, row, count, *_ = arguments
    return _row(pointers, row), pointers.new_empty(count), None, count


def _row(pointers: Tensor, row: int) -> Tensor:
    return pointers if row == WHOLE else pointers[row]


SEGMENTS = as_indices(
    ("Tensor pointers", "int row", "SymInt count", "str framework", "str counted"),
    _graph,
    "_of_segments",
    "segments of a compiled program are pointers, no Graph",
    shapes=_shapes,
    lengths=lambda arguments, dtype: _row(*arguments[:2]).diff().to(dtype),
)
"""row, framework, counted: as of ``edges.EDGES``."""

for _operator in (AGGREGATE, EDGE_MAP, EDGE_SOFTMAX, SEGMENT_SOFTMAX, EDGE_SOFTMAX_BACKWARD, RECURRENCE):
    register_for(_operator, SEGMENTS)
