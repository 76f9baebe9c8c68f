"""Edge maps on a GPU: one launch over rows, or over parts of long ones."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ....compiler.cache.kernel import Kernel
from ....planner.cuda.rows import LanePlan, TeamPartPlan, TeamPlan
from ...core.executable import builds
from ..programs.edge_map import EdgeMapSpec
from ..schedules_cuda import edge_map_kernel
from .aggregation import at_parts
from .edge_maps import EdgeMaps
from .parts_cuda import compact, team_parts


@builds(EdgeMapSpec, TeamPlan, LanePlan)
class EdgeMapsOfTeams(EdgeMaps):
    """A team of lanes for each row."""

    @staticmethod
    def kernel_of(spec: EdgeMapSpec, plan: Any) -> Kernel:
        return edge_map_kernel(compact(spec), plan)


@builds(EdgeMapSpec, TeamPartPlan)
class EdgeMapsOfParts(EdgeMaps):
    """A team of lanes for each part of a row, whose edges are the same."""

    @staticmethod
    def kernel_of(spec: EdgeMapSpec, plan: TeamPartPlan) -> Kernel:
        return edge_map_kernel(compact(spec), plan.rest)

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        parts = team_parts(graph, self.plan.part)
        self.run(graph, parts.whole, at_parts(self.places, operands, parts.row_of_part), results)
