"""Edge maps: one parallel loop over rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....compiler.cache.kernel import Kernel
from ....planner.cpu.rows import RowPlan
from ....planner.plan import Plan
from ...core.arguments import kernel_arguments
from ...core.executable import builds
from ...core.last_run import note
from ..programs.edge_map import EdgeMapSpec
from ..schedules_cpu import edge_map_kernel


@builds(EdgeMapSpec, RowPlan)
class EdgeMaps:
    """An edge map of one shape and type by a plan (`ops.core.executable.Executable`)."""

    def __init__(self, spec: EdgeMapSpec, plan: Any):
        kernel = self.kernel_of(spec, plan)
        self.spec, self.plan, self.kernels = spec, plan, (kernel,)
        self.places = tuple(operand.at for operand in spec.operands)
        self.widths = [operand.width for operand in spec.operands]
        self.numbered, self.entry = spec.numbered, kernel.entry

    @staticmethod
    def kernel_of(spec: EdgeMapSpec, plan: Any) -> Kernel:
        """The kernel that a plan runs."""
        return edge_map_kernel(spec, plan.groups > 1, plan.prefetch)

    @classmethod
    def final(cls, spec: EdgeMapSpec, plan: Plan) -> Plan:
        return plan

    @classmethod
    def possible(cls, spec: EdgeMapSpec, plan: Plan, graph) -> Mapping[str, str]:
        """The variants that a call on a graph may take, and when."""
        return {}

    def __call__(self, graph, operands: list[Tensor | None], results: list[Tensor]) -> None:
        self.run(graph, graph, operands, results)

    def run(self, graph, structure, operands: list[Tensor | None], results: list[Tensor]) -> None:
        """Fill the results. structure: whose rows the kernel goes through; its edges are those of the graph."""
        plan = self.plan
        numbers = graph.edge_numbers if self.numbered else None
        arguments = kernel_arguments(structure, plan.groups, self.places, self.widths, operands, numbers, plan.balance)
        note(self, "")
        self.entry(*arguments, *results)
