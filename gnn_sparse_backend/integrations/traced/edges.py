"""Edges as compiled programs know them: index tensors and sizes. The ``Graph`` is found at run time.

    gsb::aggregate_of_edges, edge_map_of_edges, edge_softmax_of_edges, attend_of_edges, ...: as those on a `Graph`
    gsb::in_degrees_of_edges: number of edges into each row

An index tensor enters whole: of a (2, edges) tensor ``row`` says which row of it is meant, so that at run time it is
the tensor that the user's program has, and its graph is found again without a look at its content
(``integrations/core/graphs.py``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...ops.attention.operators import ATTEND, ATTEND_BACKWARD, EDGE_SOFTMAX, EDGE_SOFTMAX_BACKWARD
from ...ops.core.library import register_for
from ...ops.core.operator import Operator
from ...ops.core.traced import Traced, as_indices
from ...ops.message.operators import AGGREGATE, EDGE_MAP
from ...ops.message.reductions.recurrence import RECURRENCE
from ...structures.checks import plain_tensor
from ...structures.graph import Graph
from ..core.counters import ours
from ..core.graphs import GRAPHS
from .matching import WHOLE


def vector(index: Tensor, row: int) -> Tensor:
    index = plain_tensor(index)
    return index if row == WHOLE else index[row]


def _graph(arguments: tuple, operands) -> Graph:
    """The graph of these arguments, which counts the call. Raises IndexError for ids out of range."""
    rows, columns, row, column, num_rows, num_columns, wraps, framework, counted = arguments
    rows = vector(rows, row)
    columns = None if columns is None else vector(columns, column)
    try:
        graph = _find(rows, columns, num_rows, num_columns)
    except ValueError as error:
        wrapped = _wrapped(rows, columns, num_rows, num_columns) if wraps else None
        if wrapped is None:
            raise IndexError(f"an edge index is out of range: {error}") from None
        graph = _find(*wrapped, num_rows, num_columns)
    if counted:
        ours(framework, counted)
    return graph


def _find(rows: Tensor, columns: Tensor | None, num_rows: int, num_columns: int) -> Graph:
    if columns is None:
        return GRAPHS.find_end(rows, num_rows)
    graph, straight = GRAPHS.find_either(rows, columns, (num_rows, num_columns))
    return graph if straight else graph.transpose()


def _wrapped(rows: Tensor, columns: Tensor | None, num_rows: int, num_columns: int):
    """The ends with negative numbers counted from the end, as ``x[index]`` has them; None where that is not all."""
    found = []
    for index, size in ((rows, num_rows), (columns, num_columns)):
        if index is not None and index.numel() and not -size <= int(index.min()) <= int(index.max()) < size:
            return None
        found.append(index if index is None else torch.where(index < 0, index + size, index))
    return found


def _shapes(arguments: tuple) -> tuple:
    rows, _, row, _, num_rows, num_columns, *_ = arguments
    return rows.new_empty(num_rows + 1), rows if row == WHOLE else rows[row], None, num_columns


def _lengths(arguments: tuple, dtype: torch.dtype) -> Tensor:
    uncounted = Traced((*arguments[:-1], ""), kind=EDGES)
    return IN_DEGREES(uncounted, (arguments[0],), (dtype,))


EDGES = as_indices(
    (
        "Tensor rows",
        "Tensor? columns",
        "int row",
        "int column",
        "SymInt num_rows",
        "SymInt num_columns",
        "bool wraps",
        "str framework",
        "str counted",
    ),
    _graph,
    "_of_edges",
    "edges of a compiled program are index tensors, no Graph",
    shapes=_shapes,
    lengths=_lengths,
)
"""Edges, without columns a graph with these rows and any columns. wraps: ids may count from the end. framework,
counted: as ``counters.ours`` takes them; "" is not counted."""

IN_DEGREES = Operator(
    "in_degrees",
    lambda graph, operands, attributes: graph.in_degrees.to(attributes[0], copy=True),
    structure=EDGES,
    operands="Tensor index",
    attributes="ScalarType dtype",
    like=lambda arguments, operands, attributes, transposed: operands[0].new_empty(
        arguments[0].shape[0] - 1, dtype=attributes[0]
    ),
)
"""(rows,) the number of edges into each, in a type: attributes are (the type,)."""

for _operator in (
    AGGREGATE,
    EDGE_MAP,
    EDGE_SOFTMAX,
    EDGE_SOFTMAX_BACKWARD,
    ATTEND,
    ATTEND_BACKWARD,
    RECURRENCE,
):
    register_for(_operator, EDGES)
