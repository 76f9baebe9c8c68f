"""Edge maps: one launch or parallel loop over rows, on a GPU over parts of long ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....planner.cpu.rows import RowPlan
from ....planner.cuda.plan import CudaPlan
from ....planner.cuda.rows import LanePlan, TeamPartPlan, TeamPlan
from ....planner.plan import Plan
from ...core.arguments import kernel_arguments
from ...core.executable import builds
from ...core.last_run import note
from .. import schedules_cpu, schedules_cuda
from ..programs.edge_map import EdgeMapSpec
from .aggregation import at_parts
from .parts_cuda import compact, team_parts


@builds(EdgeMapSpec, RowPlan, TeamPlan, LanePlan, TeamPartPlan)
class EdgeMaps:
    """An edge map of one shape and type by a plan (`ops.core.executable.Executable`)."""

    def __init__(self, spec: EdgeMapSpec, plan: Any):
        self.part = plan.part if isinstance(plan, TeamPartPlan) else 0
        if isinstance(plan, CudaPlan):
            kernel = schedules_cuda.edge_map_kernel(compact(spec), plan.rest if self.part else plan)
        else:
            kernel = schedules_cpu.edge_map_kernel(spec, plan.groups > 1, plan.prefetch)
        self.spec, self.plan, self.kernels = spec, plan, (kernel,)
        self.places = tuple(operand.at for operand in spec.operands)
        self.widths = [operand.width for operand in spec.operands]
        self.numbered, self.entry = spec.numbered, kernel.entry

    @classmethod
    def final(cls, spec: EdgeMapSpec, plan: Plan) -> Plan:
        return plan

    @classmethod
    def possible(cls, spec: EdgeMapSpec, plan: Plan, graph) -> Mapping[str, str]:
        """The variants that a call on a graph may take, and when."""
        return {}

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        plan, structure = self.plan, graph
        if self.part:  # edges are the same in parts of rows
            parts = team_parts(graph, self.part)
            structure, operands = parts.whole, at_parts(self.places, operands, parts.row_of_part)
        numbers = graph.edge_numbers if self.numbered else None
        arguments = kernel_arguments(structure, plan.groups, self.places, self.widths, operands, numbers, plan.balance)
        note(self, "")
        self.entry(*arguments, *results)
