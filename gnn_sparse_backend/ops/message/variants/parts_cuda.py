"""Operators on a GPU in two passes: over the parts of rows, each a team's work, and over the results of the parts.

Or in buckets of rows of equal length, where the plan wants them.

Nothing is added atomically: parts and their order depend on the structure alone, and so does every bit of a result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ....formats.counts import prefix_sums
from ....formats.partitions.row_parts import ceil_div, most_parts, split_rows
from ....planner.cuda.plan import CudaPlan, plan_cuda
from ....structures.derived import Derived
from ....structures.pieces import Piece
from ...core.arguments import kernel_arguments
from ..programs.aggregate import AggregateSpec
from ..schedules_cuda import aggregate_kernel
from .buckets_cuda import InBuckets


@dataclass(frozen=True, eq=False)
class Parts:
    """All rows in parts of bounded length.

    whole: the structure with a row for each part. row_of_part: (parts,). sums: (rows, parts), which adds the parts of a
    row up.
    """

    whole: Piece
    row_of_part: Tensor
    sums: Piece

    def operands(self, places, operands) -> list:
        """The operands of the parts: those at rows are copied for each of a row's parts."""
        return [x.index_select(0, self.row_of_part) if place == "row" else x for x, place in zip(operands, places)]


@dataclass(frozen=True)
class TeamParts(Derived[Parts]):
    """All rows of a graph in parts of bounded length."""

    longest: int

    def compute(self, graph) -> Parts:
        return _parts(graph, self.longest)


def parts_of(graph, longest: int) -> Parts:
    """`TeamParts` of a graph."""
    return graph.derived(TeamParts(longest))


def _parts(graph, longest: int) -> Parts:
    indptr, indices, (rows, cols) = graph.indptr, graph.indices, graph.shape
    lengths = indptr.diff().long()
    # of unread rows as many parts as there may be; those beyond the last are empty, and added to no row
    most = most_parts(graph.num_edges, rows, longest) if graph.unsynchronised is not None else None
    row, start, length = split_rows(lengths, longest, most=most)
    count = row.numel()
    starts = torch.cat([start, start[-1:] + length[-1:]]).to(indptr.dtype)
    of_row = ceil_div(lengths, longest)
    first = prefix_sums(of_row).to(indptr.dtype)
    order = torch.arange(count, dtype=indptr.dtype, device=row.device)
    return Parts(Piece((count, cols), starts, indices, None), row, Piece((rows, count), first, order, None))


class TwoPasses:
    """An aggregation over parts of rows, whose results are kept in the type of sums, and then reduced like messages."""

    def __init__(self, spec: AggregateSpec, plan: CudaPlan):
        self.buckets = InBuckets(spec, plan) if plan.buckets else None
        if plan.buckets:
            return
        self.spec, self.longest, self.balance = spec, plan.longest_part, plan.balance
        first, second = spec.in_parts()
        self.kept = getattr(torch, first.dtype)
        self.widths = [operand.width for operand in spec.operands]
        self.first = aggregate_kernel(first, replace(plan, longest_part=0)).entry
        self.second = aggregate_kernel(second, plan_cuda(plan.arch)).entry

    def run(self, graph, places, operands, edge_ids: Tensor | None, out: Tensor, degrees: Tensor | None = None) -> None:
        """Fill ``out``, (rows, features). degrees: what a mean divides by, where it is not the degrees of the graph."""
        if self.buckets is not None:
            self.buckets.run(graph, places, operands, edge_ids, out)
            return
        parts = parts_of(graph, self.longest)
        features = self.spec.features
        results = torch.empty((parts.whole.shape[0], features), dtype=self.kept, device=out.device)
        of_parts = parts.operands(places, operands)
        self.first(*kernel_arguments(parts.whole, 1, places, self.widths, of_parts, edge_ids, self.balance), results)
        of_rows = (graph.in_degrees if degrees is None else degrees,) if self.spec.degrees else ()
        self.second(
            *kernel_arguments(parts.sums, 1, ("column",), [features], [results], None, self.balance, of_rows), out
        )


__all__ = ["Parts", "TwoPasses", "parts_of"]
