"""Sums of a few features over short rows, whose kernel goes by the row of each non-zero instead of by rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ....formats.structure import row_of_position
from ....planner.plan import Plan
from ....structures.derived import Derived
from ...core.arguments import structure_arguments, structured_arguments
from ..programs.aggregate import AggregateSpec
from ..schedules_cpu import aggregate_kernel


class Scattered:
    """An aggregation by a plan of scattered sums. in_order: what takes its place on rows in the order of their
    lengths.
    """

    def __init__(self, spec: AggregateSpec, plan: Plan, in_order):
        self.plan, self.degrees, self.in_order = plan, spec.degrees, in_order
        self.widths = [operand.width for operand in spec.operands]
        self.structure = FlatRowGroups(plan.groups, plan.balance)
        self.entry = aggregate_kernel(spec, plan.groups > 1, plan.prefetch, plan.reduction).entry

    def run(self, graph, places, operands, edge_ids: Tensor | None, out: Tensor) -> None:
        """Fill ``out``, (rows, features)."""
        sizes, arrays, of_rows = graph.derived(self.structure)
        of_rows = (graph.in_degrees, *of_rows) if self.degrees else of_rows
        self.entry(*structured_arguments(sizes, arrays, places, self.widths, operands, edge_ids, False, of_rows), out)


@dataclass(frozen=True)
class RowOfPosition(Derived[Tensor]):
    """(edges,) the row of each non-zero."""

    def compute(self, graph) -> Tensor:
        return row_of_position(graph.indptr, graph.num_edges)


@dataclass(frozen=True)
class FlatRowGroups(Derived[tuple]):
    """(sizes, index arrays, (row of each non-zero, first row of each group)) of a graph in so many groups of rows."""

    groups: int
    balance: str

    def compute(self, graph) -> tuple:
        sizes, (group_ptr, indptr, indices) = structure_arguments(graph, self.groups, self.balance)
        rows = graph.derived(RowOfPosition())
        return sizes, (group_ptr, indptr[group_ptr.long()], indices), (rows, group_ptr[:-1].contiguous())


__all__ = ["FlatRowGroups", "Scattered"]
