"""Chunks of rows: how a graph is cut into them, and a sum over neighbours for the rows of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...planner.cpu.passes import PartitionPlan
from ...planner.plan import interned
from ...runtime.accounts import file_of
from ...structures.derived import fact_of_arrays
from ...structures.graph import Graph
from ..core.plans import plan_key, plan_of
from ..message.calls import aggregation_of, run_call
from ..message.message_op import MessageOp

CHUNK = 64 << 20
"""Bytes of the features of a chunk. A layer goes by chunks where its features take more. Tests lower it."""
EDGES = 1 << 21
"""Edges of a chunk, of which each may have some numbers, unless one row has more."""


class Slice(NamedTuple):
    """Rows from first to last (exclusive). graph: these rows, with all columns, on the arrays of the whole."""

    first: int
    last: int
    graph: Graph

    def of(self, x: Tensor) -> Tensor:
        """The rows of a tensor that has one for each row."""
        return x[self.first : self.last]


def needs_chunks(rows: int, features: int, dtype: torch.dtype) -> bool:
    """Whether features of these sizes are more than a chunk."""
    return rows * features * dtype.itemsize > CHUNK


def slices_of(graph: Graph, features: int, dtype: torch.dtype) -> tuple[Slice, ...]:
    """The chunks of a graph on the CPU, for rows of at most these features. They are kept with the graph, and take
    its offsets once more and no index.
    """
    graph.indptr  # noqa: B018  # makes arrays of a list of edges
    rows = max(CHUNK // (features * dtype.itemsize), 1)
    return _slices(graph, 1 << (rows.bit_length() - 1), EDGES)


@fact_of_arrays
def _slices(structure, rows: int, edges: int) -> tuple[Slice, ...]:
    indptr, indices = structure.indptr, structure.indices
    offsets = indptr.numpy()
    (count, columns), found, first = structure.shape, [], 0
    while first < count:
        begin = int(offsets[first])
        full = int(np.searchsorted(offsets, begin + edges, side="right")) - 1
        last = min(max(full, first + 1), first + rows, count)
        own, its = indptr[first : last + 1] - begin, indices[begin : offsets[last]]
        found.append(Slice(first, last, Graph._of_rows(own, its, columns)))
        first = last
    return tuple(found)


@fact_of_arrays
def has_loops(structure) -> bool:
    """Whether an edge leads from a node to itself."""
    indptr, indices = structure.indptr, structure.indices
    step = 1 << 16
    for first in range(0, structure.shape[0], step):
        ends = indptr[first : first + step + 1]
        rows = torch.arange(first, first + ends.numel() - 1, dtype=indices.dtype)
        if bool((rows.repeat_interleave(ends.diff().long()) == indices[int(ends[0]) : int(ends[-1])]).any()):
            return True
    return False


def mapped(x: Tensor) -> Any:
    """The ``gsb.load_features`` of which a tensor shows all rows; None of tensors in memory."""
    found = file_of(x)
    return found if found is not None and found.tensor.shape == x.shape else None


def read_ahead(file: Any, rows: Slice) -> None:
    """Have the rows behind a chunk read, as many as it has."""
    if file is not None:
        file.read_ahead(rows.last, min(2 * rows.last - rows.first, len(file)))


def summed(of: MessageOp, graph: Graph, operands: Sequence[Tensor]) -> Tensor:
    """An aggregation over the rows of a slice, in one pass: ranges of columns would be copies of indices."""
    call = aggregation_of(of, graph, operands, (), 0)
    dtype = operands[0].dtype
    if graph.num_edges and isinstance(plan := plan_of(graph, of.kind, call.work, dtype, call.in_order), PartitionPlan):
        graph.plans[plan_key(of.kind, call.work, dtype, call.in_order)] = interned(plan.otherwise)
    found: Tensor = run_call(call, graph, operands)
    return found
