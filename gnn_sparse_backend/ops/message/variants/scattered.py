"""Sums of a few features over short rows, whose kernel goes by the row of each non-zero instead of by rows."""

from __future__ import annotations

from torch import Tensor

from ....formats.structure import row_of_position
from ....planner.plan import Plan
from ....structures.immutable import once
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
        self.entry = aggregate_kernel(spec, plan.groups > 1, plan.prefetch, plan.reduction).entry

    def run(self, graph, places, operands, edge_ids: Tensor | None, out: Tensor) -> None:
        """Fill ``out``, (rows, features)."""
        sizes, arrays, of_rows = flat_structure(graph, self.plan.groups, self.plan.balance)
        of_rows = (graph.in_degrees, *of_rows) if self.degrees else of_rows
        self.entry(*structured_arguments(sizes, arrays, places, self.widths, operands, edge_ids, False, of_rows), out)


def flat_structure(graph, groups: int, balance: str) -> tuple:
    """(sizes, index arrays, (row of each non-zero, first row of each group)) of a graph in so many groups of rows, made
    at the
    first use and kept with it: an index for each non-zero.
    """
    return once(graph.plans, ("flat", groups, balance), lambda: _flat(graph, groups, balance))


def _flat(graph, groups: int, balance: str) -> tuple:
    sizes, (group_ptr, indptr, indices) = structure_arguments(graph, groups, balance)
    rows = once(graph.plans, "row of each non-zero", lambda: row_of_position(indptr, graph.num_edges))
    return sizes, (group_ptr, indptr[group_ptr.long()], indices), (rows, group_ptr[:-1].contiguous())


__all__ = ["Scattered", "flat_structure"]
