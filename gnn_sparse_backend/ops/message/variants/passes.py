"""Aggregations in several passes: over column partitions, or over the parts of long rows apart from the others.

The order of reduction is that of the passes, whatever the number of threads: the same bits at every run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ....planner.cpu.spmm import group_count
from ....planner.plan import Plan
from ....structures.derived import Derived
from ....structures.pieces import Piece, Rows, column_partitions, row_parts
from ...core.arguments import kernel_arguments
from ..programs.aggregate import AggregateSpec
from ..schedules_cpu import aggregate_kernel


def run_passes(
    graph, plan: Plan, spec: AggregateSpec, places, operands, edge_ids: Tensor | None, results: list[Tensor]
) -> None:
    """Fill the result, (rows, features), and what is stored of the chosen edges, by a plan of several passes that
    supports the aggregation.
    """
    if plan.longest_part:
        _parts_of_rows(graph, plan, spec, places, operands, edge_ids, *results)
    else:
        _partitions(graph, plan, spec, places, operands, edge_ids, results)


def _partitions(
    graph, plan: Plan, spec: AggregateSpec, places, operands, edge_ids: Tensor | None, results: list[Tensor]
) -> None:
    """Every pass goes on from what the one before has left in the results; the last one divides a mean."""
    pieces = graph.derived(ColumnPartitions(plan.partitions))
    numbered = edge_ids is not None or "edge" in places
    for turn, piece in enumerate(pieces):
        last = turn == len(pieces) - 1
        each = replace(
            spec,
            numbered=numbered,
            continues=turn > 0,
            empty=spec.empty and last,
            reduce="sum" if spec.reduce == "mean" and not last else spec.reduce,
        )
        numbers = piece.edge_numbers(graph.edge_numbers) if numbered else None
        _run(piece, plan, each, places, operands, numbers, graph.in_degrees if each.degrees else None, *results)


def _parts_of_rows(
    graph, plan: Plan, spec: AggregateSpec, places, operands, edge_ids: Tensor | None, out: Tensor
) -> None:
    """Results of parts of long rows are kept in the type of sums, and reduced like messages."""
    first, second = spec.in_parts()
    threads = torch.get_num_threads()
    for rows in graph.derived(RowParts(plan.longest_part)):
        count = rows.piece.shape[0]
        own = replace(plan, groups=group_count(rows.edges, count, spec.features, threads))
        of_rows = [
            x[rows.first : rows.last].expand(count, *x.shape[1:]) if place == "row" else x
            for x, place in zip(operands, places)
        ]
        degrees = graph.in_degrees[rows.first : rows.last] if spec.degrees else None
        result = out[rows.first : rows.last]
        if rows.sums is None:
            _run(rows.piece, own, spec, places, of_rows, edge_ids, degrees, result)
            continue
        parts = torch.empty((count, spec.features), dtype=getattr(torch, first.dtype), device=out.device)
        _run(rows.piece, own, first, places, of_rows, edge_ids, None, parts)
        _run(rows.sums, Plan(1), second, ("column",), [parts], None, degrees, result)


def _run(
    piece: Piece,
    plan: Plan,
    spec: AggregateSpec,
    places,
    operands,
    numbers: Tensor | None,
    degrees: Tensor | None,
    *results: Tensor,
) -> None:
    """Fill the results with the aggregation over a piece. degrees: (rows of the piece,) of the whole rows, where
    needed.
    """
    widths = [operand.width for operand in spec.operands]
    arguments = kernel_arguments(
        piece, plan.groups, places, widths, operands, numbers, plan.balance, (degrees,) if spec.degrees else ()
    )
    aggregate_kernel(spec, plan.groups > 1, plan.prefetch, plan.reduction).entry(*arguments, *results)


@dataclass(frozen=True)
class ColumnPartitions(Derived[tuple[Piece, ...]]):
    """`column_partitions` of a graph."""

    partitions: int

    def compute(self, graph) -> tuple[Piece, ...]:
        return column_partitions(graph.indptr, graph.indices, graph.shape, self.partitions)


@dataclass(frozen=True)
class RowParts(Derived[tuple[Rows, ...]]):
    """The rows of a graph, long ones in parts (`row_parts`)."""

    longest: int

    def compute(self, graph) -> tuple[Rows, ...]:
        return row_parts(graph.indptr, graph.indices, graph.shape, self.longest)


__all__ = ["ColumnPartitions", "RowParts", "run_passes"]
