"""Aggregations in several passes: over column partitions, or over the parts of long rows apart from the others.

The order of reduction is that of the passes, whatever the number of threads: the same bits at every run.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ....compiler.language.types import ACCUMULATOR
from ....planner.cpu.passes import PartitionPlan, PartPlan
from ....planner.cpu.rows import RowPlan
from ....planner.cpu.spmm import group_count
from ....runtime.threads import planned_threads
from ....structures import pieces
from ....structures.derived import fact, fact_of_arrays
from ....structures.pieces import Piece, Rows
from ...core.arguments import kernel_arguments, operand_arguments, structure_arguments
from ...core.executable import builds
from ...core.last_run import note
from ..programs.aggregate import AggregateSpec
from ..schedules_cpu import aggregate_kernel
from .aggregation import refuses_parts
from .one_pass import MayGoInLanes


@builds(AggregateSpec, PartitionPlan)
class Partitions(MayGoInLanes):
    """Over column partitions: every pass goes on from what the one before has left in the results; the last one divides
    a mean (`schedules_cpu.PASSES`).
    """

    @classmethod
    def refuses(cls, spec: AggregateSpec, plan: PartitionPlan) -> str | None:
        if not spec.reduction.chooses and ACCUMULATOR[spec.dtype] != spec.dtype:
            return f"sums of column partitions would be rounded to {spec.dtype} after each"
        return None

    def __init__(self, spec: AggregateSpec, plan: PartitionPlan):
        numbered = "number" in spec.keep or any(place in ("edge", "number") for place in spec.places)
        super().__init__(replace(spec, numbered=numbered), plan)

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        spec, plan = self.spec, self.plan
        parts = column_partitions(graph, plan.partitions)
        numbered = partition_numbers(graph, plan.partitions) if spec.numbered else ()
        edges = [x.shape[0] for x, place in zip(operands, self.places) if place == "edge"][:1]
        given = operand_arguments(self.places, self.widths, operands, False)
        note(self, "")
        for at, piece in enumerate(parts):
            turn = "first" if piece is parts[0] else "last" if piece is parts[-1] else "next"
            numbers = numbered[at : at + 1]
            degrees = self.degrees(graph) if turn == "last" else ()
            (*sizes, nnz), arrays = structure_arguments(piece, plan.groups, plan.balance)
            kernel = self.kernel(
                turn, partial(aggregate_kernel, spec, plan.groups > 1, plan.prefetch, plan.reduction, turn)
            )
            kernel.entry(*sizes, *edges, nnz, *arrays, *degrees, *given, *results, *numbers)


@builds(AggregateSpec, PartPlan)
class Parts(MayGoInLanes):
    """Over the parts of long rows, whose results are kept in the type of sums, and reduced like messages."""

    refuses = staticmethod(refuses_parts)

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        spec, plan, (out,) = self.spec, self.plan, results
        first, second = spec.in_parts()
        threads, numbers = planned_threads(), self.numbers(graph)
        note(self, "")
        for rows in row_parts(graph, plan.part):
            count = rows.piece.shape[0]
            own = replace(plan, groups=group_count(rows.edges, count, spec.features, threads))
            of_rows = [
                x[rows.first : rows.last].expand(count, *x.shape[1:]) if place == "row" else x
                for x, place in zip(operands, self.places)
            ]
            degrees = graph.in_degrees[rows.first : rows.last] if spec.degrees else None
            result = out[rows.first : rows.last]
            if rows.sums is None:
                self._run(rows.piece, own, spec, of_rows, numbers, degrees, result)
                continue
            parts = torch.empty((count, spec.features), dtype=getattr(torch, first.dtype), device=out.device)
            self._run(rows.piece, own, first, of_rows, numbers, None, parts)
            self._run(rows.sums, RowPlan(1), second, [parts], None, degrees, result)

    def _run(
        self, piece: Piece, plan: RowPlan, spec: AggregateSpec, operands, numbers, degrees, result: Tensor
    ) -> None:
        """Fill the result with the aggregation over a piece. degrees: (rows of the piece,) of the whole rows, where
        needed.
        """
        places, widths = [operand.at for operand in spec.operands], [operand.width for operand in spec.operands]
        arguments = kernel_arguments(
            piece, plan.groups, places, widths, operands, numbers, plan.balance, (degrees,) if spec.degrees else ()
        )
        how = spec, plan.groups > 1, plan.prefetch, plan.reduction
        self.kernel(how, partial(aggregate_kernel, *how)).entry(*arguments, result)


@fact_of_arrays
def column_partitions(graph, partitions: int) -> tuple[Piece, ...]:
    """`column_partitions` of a graph."""
    return pieces.column_partitions(graph.indptr, graph.indices, graph.shape, partitions)


@fact
def partition_numbers(graph, partitions: int) -> tuple[Tensor, ...]:
    """The edge at each position of each column partition."""
    found = pieces.positions_in_partitions(graph.indices, graph.shape, partitions)
    if graph.edge_ids is None:
        return tuple(positions.to(graph.indices.dtype) for positions in found)
    return tuple(graph.edge_ids.index_select(0, positions) for positions in found)


@fact
def row_parts(graph, longest: int) -> tuple[Rows, ...]:
    """The rows of a graph, long ones in parts (`row_parts`)."""
    return pieces.row_parts(graph.indptr, graph.indices, graph.shape, longest)
