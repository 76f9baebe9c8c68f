"""Sums of a few features over short rows, whose kernel goes by the row of each non-zero instead of by rows."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ....compiler.cache.kernel import Kernel
from ....formats.structure import row_of_position
from ....planner.cpu.rows import USED_AGAIN, ScatteredPlan
from ....structures.derived import fact
from ...core.arguments import structure_arguments, structured_arguments
from ...core.executable import builds
from ...core.last_run import note
from ..programs.aggregate import AggregateSpec
from ..programs.scattered import refuses as refuses_scattered
from ..schedules_cpu import aggregate_kernel
from .aggregation import Aggregation
from .one_pass import BY_LENGTH, OnePass, order_of


@builds(AggregateSpec, ScatteredPlan)
class Scattered(Aggregation):
    """An aggregation by a plan of scattered sums. On rows in the order of their lengths, whose ends cost less than
    additions in memory, one pass takes their place; bits are the same.
    """

    variants: ClassVar = {
        "by non-zeros": "while a graph is new",
        BY_LENGTH: f"from call {USED_AGAIN} on, where an order pays, row after row; results are the same bits",
    }

    def __init__(self, spec: AggregateSpec, plan: ScatteredPlan):
        super().__init__(spec, plan)
        self.in_order = OnePass(spec, plan.otherwise)
        self.edges = "edge" in self.places
        self._kernels[None] = aggregate_kernel(spec, plan.groups > 1, plan.prefetch, "scattered")

    @classmethod
    def refuses(cls, spec: AggregateSpec, plan: ScatteredPlan) -> str | None:
        if spec.staged:
            return "what is added up where it lies does not go with weights of heads, which are kept in registers"
        return refuses_scattered(spec)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return super().kernels + self.in_order.kernels

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        order = order_of(graph, self.spec.features, self.edges)
        if order is not None:
            self.in_order.run(graph, operands, results, order)
            return
        sizes, arrays, of_rows = flat_row_groups(graph, self.plan.groups, self.plan.balance)
        of_rows = *self.degrees(graph), *of_rows
        arguments = structured_arguments(
            sizes, arrays, self.places, self.widths, operands, self.numbers(graph), False, of_rows
        )
        note(self, "by non-zeros")
        self._kernels[None].entry(*arguments, *results)


@fact
def row_of_nonzero(graph) -> Tensor:
    """(edges,) the row of each non-zero."""
    return row_of_position(graph.indptr, graph.num_edges)


@fact
def flat_row_groups(graph, groups: int, balance: str) -> tuple:
    """(sizes, index arrays, (row of each non-zero, first row of each group)) of a graph in ``groups`` row groups."""
    sizes, (group_ptr, indptr, indices) = structure_arguments(graph, groups, balance)
    rows = row_of_nonzero(graph)
    return sizes, (group_ptr, indptr[group_ptr.long()], indices), (rows, group_ptr[:-1].contiguous())
