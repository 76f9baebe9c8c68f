"""Operators on a GPU in two passes: over the parts of rows, each a team's work, and over the results of the parts.

Nothing is added atomically: parts and their order depend on the structure alone, and so does every bit of a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ....compiler.cache.kernel import Kernel
from ....formats.counts import prefix_sums
from ....formats.partitions.row_parts import ceil_div, most_parts, split_rows
from ....frozen import dataclass
from ....planner.cuda.rows import LanePlan, TeamPartPlan, TeamPlan
from ....planner.plan import Plan
from ....structures.derived import fact
from ....structures.pieces import Piece
from ...core.arguments import kernel_arguments
from ...core.executable import builds
from ...core.last_run import note
from ..programs.aggregate import AggregateSpec
from ..schedules_cpu import refuses_lanes
from ..schedules_cuda import aggregate_kernel
from .aggregation import Aggregation, at_parts, final_plan, refuses_parts


@dataclass(frozen=True, eq=False)
class Parts:
    """All rows in parts of bounded length.

    whole: the structure with a row for each part. row_of_part: (parts,). sums: (rows, parts), which adds the parts of a
    row up.
    """

    whole: Piece
    row_of_part: Tensor
    sums: Piece


@fact
def team_parts(graph, longest: int) -> Parts:
    """All rows of a graph in parts of bounded length."""
    indptr, indices, (rows, cols) = graph.indptr, graph.indices, graph.shape
    lengths = indptr.diff().long()
    # unread rows have as many parts as there may be; those beyond the last are empty, and added to no row
    most = most_parts(graph.num_edges, rows, longest) if graph.unsynchronised is not None else None
    row, start, length = split_rows(lengths, longest, most=most)
    count = row.numel()
    starts = torch.cat([start, start[-1:] + length[-1:]]).to(indptr.dtype)
    of_row = ceil_div(lengths, longest)
    first = prefix_sums(of_row).to(indptr.dtype)
    order = torch.arange(count, dtype=indptr.dtype, device=row.device)
    return Parts(Piece((count, cols), starts, indices, None), row, Piece((rows, count), first, order, None))


def compact(spec: Any) -> Any:
    """Return the spec without strides: what kernels of teams are given has none (`operand_arguments`), so that one
    serves all.
    """
    return replace(spec, operands=tuple(replace(operand, strided=False) for operand in spec.operands))


class OnTeams(Aggregation):
    """An aggregation by kernels of teams."""

    def __init__(self, spec: AggregateSpec, plan: Any):
        super().__init__(compact(spec), plan)


@builds(AggregateSpec, TeamPlan, LanePlan)
class TeamsOfRows(OnTeams):
    """A team of lanes for each row: one launch."""

    teams = True

    def __init__(self, spec: AggregateSpec, plan: TeamPlan | LanePlan):
        super().__init__(spec, plan)
        self._kernels[None] = aggregate_kernel(self.spec, plan)

    @classmethod
    def refuses(cls, spec: AggregateSpec, plan: TeamPlan | LanePlan) -> str | None:
        return refuses_lanes(spec) if isinstance(plan, LanePlan) else None

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        note(self, "")
        self.run(graph, operands, results, self.numbers(graph), self.degrees(graph))

    def run(self, graph, operands, results: list[Tensor], numbers: Tensor | None, degrees: tuple[Tensor, ...]) -> None:
        """Fill the results. degrees: what a mean divides by, which may be of another structure."""
        self._kernels[None].entry(*self._arguments(graph, operands, numbers, degrees), *results)

    def launch(self, structure, operands: Sequence[Tensor | None]) -> tuple[Kernel, list, str] | None:
        arguments = self._arguments(structure, operands, self.numbers(structure), self.degrees(structure))
        return self._kernels[None], self.before_operands(arguments), ""

    def _arguments(self, graph, operands, numbers: Tensor | None, degrees: tuple[Tensor, ...]) -> list:
        plan = self.plan
        return kernel_arguments(graph, plan.groups, self.places, self.widths, operands, numbers, plan.balance, degrees)


@builds(AggregateSpec, TeamPartPlan)
class TeamsOfParts(OnTeams):
    """Over parts of rows, whose results are kept in the type of sums, and then reduced like messages."""

    refuses = staticmethod(refuses_parts)

    def __init__(self, spec: AggregateSpec, plan: TeamPartPlan):
        super().__init__(spec, plan)
        first, second = self.spec.in_parts()
        self.kept = getattr(torch, first.dtype)
        self._kernels["parts"] = aggregate_kernel(first, plan.rest)
        self.second = TeamsOfRows(second, TeamPlan(plan.arch))

    @classmethod
    def final(cls, spec: AggregateSpec, plan: TeamPartPlan) -> Plan:
        return super().final(spec, replace(plan, rest=final_plan(plan.rest, spec)))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return super().kernels + self.second.kernels

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        note(self, "")
        self.run(graph, operands, results, self.numbers(graph), self.degrees(graph))

    def run(self, graph, operands, results: list[Tensor], numbers: Tensor | None, degrees: tuple[Tensor, ...]) -> None:
        """Fill the one result, (rows, features). degrees: what a mean divides by, which may be of another structure."""
        parts, (out,) = team_parts(graph, self.plan.part), results
        sums = out.new_empty((parts.whole.shape[0], self.spec.features), dtype=self.kept)
        of_parts = at_parts(self.places, operands, parts.row_of_part)
        self._kernels["parts"].entry(
            *kernel_arguments(parts.whole, 1, self.places, self.widths, of_parts, numbers, self.plan.balance), sums
        )
        self.second.run(parts.sums, [sums], results, None, degrees)
