"""Aggregations of one pass over rows, which are taken in the order of their lengths once a structure is used again and
again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ....planner.cpu.spmm import ORDER_WINDOW, USED_AGAIN, pays_in_order
from ....planner.plan import Plan
from ....structures.derived import Derived
from ....structures.pieces import Piece
from ....structures.row_order import rows_by_length
from ...core.arguments import kernel_arguments
from ..programs.aggregate import AggregateSpec
from ..schedules_cpu import aggregate_kernel


class OnePass:
    """An aggregation by a plan of one pass."""

    def __init__(self, spec: AggregateSpec, plan: Plan):
        self.spec, self.plan = spec, plan
        self.widths = [operand.width for operand in spec.operands]
        self._entries: dict = {}

    def bind(self, graph, places, operands, edge_ids: Tensor | None, order: tuple[Piece, Tensor] | None) -> tuple:
        """(entry, arguments before the results) for a call. order: as `order_of` gives it."""
        spec, plan = self.spec, self.plan
        of_rows = (graph.in_degrees,) if spec.degrees else ()
        structure, numbered = graph, spec.numbered
        if order is not None:
            structure, rows = order
            of_rows = *of_rows, rows
            numbered = numbered or "edge" in places
            edge_ids = structure.edge_numbers(graph.edge_numbers) if numbered else None
        entry = self._entries.get(order is None)
        if entry is None:
            found = replace(spec, numbered=numbered, mapped=order is not None)
            entry = self._entries[order is None] = aggregate_kernel(
                found, plan.groups > 1, plan.prefetch, plan.reduction
            ).entry
        return entry, kernel_arguments(
            structure, plan.groups, places, self.widths, operands, edge_ids, plan.balance, of_rows
        )


@dataclass(frozen=True)
class RowsByLength(Derived[tuple[Piece, Tensor]]):
    """`rows_by_length` of a graph."""

    def compute(self, graph) -> tuple[Piece, Tensor]:
        return rows_by_length(graph.indptr, graph.indices, graph.shape, ORDER_WINDOW)


ROWS_BY_LENGTH = RowsByLength()


def order_of(graph, features: int, edges: bool) -> tuple[Piece, Tensor] | None:
    """The rows of a graph by length, made once it has been used often, and kept with it; None while they stay as they
    are.

    A sampled batch is used for a forward and a backward pass, for which no order pays. Results are the same bits either
    way.
    """
    if not pays_in_order(graph.shape[0], graph.num_edges, features, edges):
        return None
    found = graph.facts.get(ROWS_BY_LENGTH)
    if found is None:
        csr = graph._csr
        csr.uses += 1
        if csr.uses < USED_AGAIN:
            return None
        found = graph.derived(ROWS_BY_LENGTH)
    return found


def expect_use(graph) -> None:
    """Let the first call on a graph be as those after many."""
    graph._csr.uses = USED_AGAIN


__all__ = ["ROWS_BY_LENGTH", "OnePass", "expect_use", "order_of"]
