"""The ways that attention, its gradient and several sums can run."""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeAlias

from torch import Tensor

from ...compiler.cache.kernel import Kernel
from ...planner.cpu.rows import RowPlan
from ..core.arguments import kernel_arguments
from ..core.executable import builds
from ..core.last_run import note
from ..message.programs.operands import Operand
from . import schedules_cpu
from .programs.attention import AttentionSpec
from .programs.attention_gradient import GradientSpec
from .programs.sums import SumsSpec

Spec: TypeAlias = AttentionSpec | GradientSpec | SumsSpec


class OnRows:
    """A kernel over rows, or over parts of them (`ops.core.executable.Executable`)."""

    def __init__(self, plan: Any, operands: tuple[Operand, ...], numbered: bool, *kernels: Kernel):
        self.plan, self.kernels, self.numbered = plan, kernels, numbered
        self.places = tuple(operand.at for operand in operands)
        self.widths = tuple(operand.width for operand in operands)

    def __call__(self, graph, operands, results: list[Tensor]) -> None:
        """Fill the results."""
        plan = self.plan
        numbers = graph.edge_ids if self.numbered else None
        arguments = kernel_arguments(graph, plan.groups, self.places, self.widths, operands, numbers, plan.balance)
        note(self, "")
        self.kernels[0].entry(*arguments, *results)


@builds(AttentionSpec, RowPlan)
@builds(GradientSpec, RowPlan)
@builds(SumsSpec, RowPlan)
def on_cpu(spec: Spec, plan: RowPlan) -> OnRows:
    return OnRows(plan, spec.operands, spec.numbered, kernel_of(schedules_cpu, spec, plan.groups > 1, plan.prefetch))


def kernel_of(schedules: ModuleType, spec: Spec, *how: Any) -> Kernel:
    """The kernel of a spec by the schedules of a device."""
    if isinstance(spec, GradientSpec):
        return schedules.attention_gradient_kernel(spec, *how)
    return (schedules.attention_kernel if isinstance(spec, AttentionSpec) else schedules.sums_kernel)(spec, *how)
