"""Aggregations of one pass over rows, which are taken in the order of their lengths once a structure is used again and
again, and two bfloat16 features at a time where they lie so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ....compiler.cache.kernel import Kernel
from ....planner.cpu.rows import ORDER_WINDOW, USED_AGAIN, RowPlan, pays_in_order
from ....planner.plan import Plan
from ....structures.derived import Derived
from ....structures.pieces import Piece, rows_by_length
from ...core.arguments import kernel_arguments
from ...core.executable import builds
from ...core.last_run import note
from ..programs.aggregate import AggregateSpec
from ..schedules_cpu import aggregate_kernel, as_bf16x2, refuses_host_lanes
from .aggregation import Aggregation

AS_THEY_STAND, BY_LENGTH = "rows as they stand", "rows by length"
IN_PAIRS = ", bf16x2"
"""Added to the name of a variant that takes two features at a time."""


class MayGoInLanes(Aggregation):
    """An aggregation by a plan that has lanes where the aggregation takes them."""

    @classmethod
    def final(cls, spec: AggregateSpec, plan: RowPlan) -> Plan:
        if plan.in_lanes and refuses_host_lanes(spec) is not None:
            plan = replace(plan, in_lanes=False)
        return super().final(spec, plan)


@builds(AggregateSpec, RowPlan)
class OnePass(MayGoInLanes):
    """An aggregation by a plan of one pass."""

    variants: ClassVar = {
        AS_THEY_STAND: "while a graph is new",
        BY_LENGTH: f"from call {USED_AGAIN} on, where an order pays; results are the same bits",
        AS_THEY_STAND + IN_PAIRS: "where bfloat16 operands are at addresses of 4 bytes",
        BY_LENGTH + IN_PAIRS: "where both are so",
    }

    def __init__(self, spec: AggregateSpec, plan: RowPlan):
        super().__init__(spec, plan)
        self.edges = "edge" in self.places
        paired = in_pairs(spec, plan)
        self.paired = None if paired is None else OnePass(paired, plan)
        self.packed = () if paired is None else paired.packed

    @classmethod
    def possible(cls, spec: AggregateSpec, plan: RowPlan, graph) -> Mapping[str, str]:
        paired = in_pairs(spec, plan) is not None
        ordered = pays_in_order(graph.shape[0], graph.num_edges, spec.features, "edge" in spec.places)
        names = {_NAMES[by_length, pair] for by_length in (False, ordered) for pair in (False, paired)}
        return {name: when for name, when in cls.variants.items() if name in names} if len(names) > 1 else {}

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return super().kernels + (() if self.paired is None else self.paired.kernels)

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        self.run(graph, operands, results, order_of(graph, self.spec.features, self.edges))

    def run(
        self,
        graph,
        operands: list[Tensor | None],
        results: list[Tensor],
        order: tuple[Piece, Tensor] | None,
        noted: bool = False,
    ) -> None:
        """Fill the results. order: as `order_of` gives it. noted: the caller has told what runs."""
        paired = self.paired
        if paired is not None and not any(operands[which].data_ptr() % 4 for which in self.packed):
            kernel, arguments = paired.bind(graph, operands, order)
            for which in self.packed:
                at = which - len(operands)  # they come last
                arguments[at] = arguments[at].view(torch.uint32)
            if not noted:
                note(self, _NAMES[order is not None, True])
            kernel.entry(*arguments, results[0].view(torch.uint32))
            return
        kernel, arguments = self.bind(graph, operands, order)
        if not noted:
            note(self, _NAMES[order is not None, False])
        kernel.entry(*arguments, *results)

    def launch(self, structure, operands: Sequence[Tensor | None]) -> tuple[Kernel, list, str] | None:
        order = structure.facts.get(ROWS_BY_LENGTH)
        if not pays_in_order(structure.shape[0], structure.num_edges, self.spec.features, self.edges):
            order = None
        elif order is None:
            return None
        if self.paired is not None:
            return None
        kernel, arguments = self.bind(structure, operands, order)
        return kernel, self.before_operands(arguments), _NAMES[order is not None, False]

    def bind(self, graph, operands: list[Tensor | None], order: tuple[Piece, Tensor] | None) -> tuple[Kernel, list]:
        """(kernel, arguments before the results) for a call."""
        spec, plan = self.spec, self.plan
        of_rows, structure, numbers = self.degrees(graph), graph, self.numbers(graph)
        if order is not None:
            structure, rows = order
            of_rows = *of_rows, rows
            numbers = structure.edge_numbers(graph.edge_numbers) if spec.numbered or self.edges else None
        kernel = self._kernels.get(order is None)
        if kernel is None:
            numbered = spec.numbered or (order is not None and self.edges)
            found = replace(spec, numbered=numbered, mapped=order is not None)
            kernel = aggregate_kernel(found, plan.groups > 1, plan.prefetch, plan.reduction)
            self._kernels[order is None] = kernel
        return kernel, kernel_arguments(
            structure, plan.groups, self.places, self.widths, operands, numbers, plan.balance, of_rows
        )


def in_pairs(spec: AggregateSpec, plan: RowPlan) -> AggregateSpec | None:
    """Return the spec on words of two bfloat16 features, where the plan can run that; else None."""
    paired = None if spec.bf16x2 else as_bf16x2(spec)
    return paired if paired is not None and OnePass.final(paired, plan) == plan else None


_NAMES = {
    (ordered, paired): (BY_LENGTH if ordered else AS_THEY_STAND) + IN_PAIRS * paired
    for ordered in (False, True)
    for paired in (False, True)
}


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
