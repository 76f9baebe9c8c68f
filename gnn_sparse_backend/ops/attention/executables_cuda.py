"""The ways that attention, its gradient, several sums and the softmax over edges can run on a GPU.

Rows that are very long are cut into parts, each a team's work. A part has its own maximum, sum and sum of
values, and a second pass makes those of the row of them (Dao et al., Flash-Decoding, 2023). What the gradient needs of
an edge depends on its row's results alone, so parts take copies of these; sums over rows are added up from those over
parts. Nothing is added atomically.

The softmax goes in three passes where rows are cut: the maximum and the sum of each part, those of each row from its
parts, and the weights of the edges of each part.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...compiler.cache.kernel import Kernel
from ...compiler.language.types import ACCUMULATOR
from ...planner.cuda.plan import CudaPlan
from ...planner.cuda.rows import LanePlan, TeamPartPlan, TeamPlan
from ...planner.cuda.strategies import plan_softmax
from ..core.arguments import edge_arguments, kernel_arguments
from ..core.executable import OnEdges, builds
from ..core.last_run import note
from ..core.plans_cuda import longest_of, problem_of_rows
from ..message.executables.aggregation import at_parts
from ..message.executables.parts_cuda import team_parts
from ..message.programs.aggregate import AggregateSpec
from ..message.programs.message import arg
from ..message.programs.operands import Operand
from ..message.schedules_cuda import aggregate_kernel
from . import schedules_cuda
from .executables import OnRows, Spec, kernel_of
from .programs.attention import AttentionSpec
from .programs.attention_gradient import GradientSpec
from .programs.edge_softmax import EdgeSoftmaxSpec
from .programs.softmax_merge import MergeSpec
from .programs.sums import SumsSpec


@builds(AttentionSpec, TeamPlan)
@builds(GradientSpec, TeamPlan)
@builds(SumsSpec, TeamPlan)
def on_gpu(spec: Spec, plan: TeamPlan) -> OnRows:
    return OnRows(plan, spec.operands, spec.numbered, kernel_of(schedules_cuda, spec, plan))


class _OnParts(OnRows):
    """A kernel over parts of rows."""

    def _of_parts(self, graph, operands) -> tuple:
        """(parts of the rows, leading arguments of a kernel over them)."""
        parts = team_parts(graph, self.plan.part)
        numbers = graph.edge_ids if self.numbered else None
        given = at_parts(self.places, operands, parts.row_of_part)
        return parts, kernel_arguments(parts.whole, 1, self.places, self.widths, given, numbers, "teams")


@builds(AttentionSpec, TeamPartPlan)
class AttentionInParts(_OnParts):
    """Attention over parts of rows, and what makes rows of them."""

    def __init__(self, spec: AttentionSpec, plan: TeamPartPlan):
        first = schedules_cuda.attention_kernel(replace(spec, parts=True), plan.rest)
        merge = MergeSpec(spec.value.dims, spec.heads, spec.dtype, spec.index_dtype)
        second = schedules_cuda.softmax_merge_kernel(merge, plan.arch)
        super().__init__(plan, spec.operands, spec.numbered, first, second)
        self.kept = [spec.scores, spec.scores, spec.features]

    def __call__(self, graph, operands, results: list[Tensor]) -> None:
        """Fill the result, (rows, features), and what is kept of its softmax, (rows, heads) each."""
        first, second = self.kernels
        parts, arguments = self._of_parts(graph, operands)
        count, kept = parts.whole.shape[0], self.kept
        most, total, values = (results[1].new_empty((count, width)) for width in kept)
        note(self, "")
        first.entry(*arguments, values, most, total)
        of_rows = kernel_arguments(parts.sums, 1, ("column",) * 3, kept, [most, total, values], None, "teams")
        second.entry(*of_rows, *results)


@builds(GradientSpec, TeamPartPlan)
@builds(SumsSpec, TeamPartPlan)
class SumsInParts(_OnParts):
    """A kernel over parts that fills arrays at the edges, and sums over the edges of each part; and kernels that add
    these up by rows.
    """

    def __init__(self, spec: GradientSpec | SumsSpec, plan: TeamPartPlan):
        self.outputs = tuple(replace(output, dtype=ACCUMULATOR[output.dtype]) for output in spec.outputs)
        first = kernel_of(schedules_cuda, replace(spec, outputs=self.outputs), plan.rest)
        second = [
            sum_of_parts(wide.features, wide.dtype, spec.index_dtype, plan.arch, given.dtype)
            for wide, given in zip(self.outputs, spec.outputs)
        ]
        super().__init__(plan, spec.operands, spec.numbered, first, *second)

    def __call__(self, graph, operands, results: list[Tensor]) -> None:
        """Fill the results: arrays at the edges first, then sums, (rows, features) each."""
        first, *second = self.kernels
        parts, arguments = self._of_parts(graph, operands)
        count = len(results) - len(self.outputs)
        at_edges, sums = results[:count], results[count:]
        of_parts = [
            out.new_empty((parts.whole.shape[0], wide.features), dtype=getattr(torch, wide.dtype))
            for out, wide in zip(sums, self.outputs)
        ]
        note(self, "")
        first.entry(*arguments, *at_edges, *of_parts)
        for kernel, wide, of_part, out in zip(second, self.outputs, of_parts, sums):
            kernel.entry(*kernel_arguments(parts.sums, 1, ("column",), [wide.features], [of_part], None, "teams"), out)


def planned_softmax(graph, spec: EdgeSoftmaxSpec, gradient: bool, arch: str) -> OnEdges | _SoftmaxInParts:
    """What runs a softmax, or its gradient, on a graph, by the plan of the rules."""
    plan = plan_softmax(problem_of_rows(graph, arch, spec.width, longest_of(graph), "max:"))
    if isinstance(plan, TeamPartPlan):
        return _SoftmaxInParts(spec, gradient, plan)
    return OnEdges(_softmax_kernel(spec, gradient, plan), plan)


def _softmax_kernel(spec: EdgeSoftmaxSpec, gradient: bool, plan: CudaPlan) -> Kernel:
    lanes = plan.lanes if isinstance(plan, LanePlan) else 0
    return schedules_cuda.edge_softmax_kernel(spec, gradient, plan.arch, lanes)


class _SoftmaxInParts:
    """An executable of a softmax over edges, or of its gradient, by parts of rows."""

    def __init__(self, spec: EdgeSoftmaxSpec, gradient: bool, plan: TeamPartPlan):
        self.plan, self.kept = plan, 1 if gradient else 2  # sums alone, or maxima and sums
        wide = ACCUMULATOR[spec.dtype]
        self.wide, self.width = getattr(torch, wide), spec.width
        first, last = (_softmax_kernel(replace(spec, stage=stage), gradient, plan.rest) for stage in ("parts", "apply"))
        if gradient:
            middle = sum_of_parts(spec.width, wide, spec.index_dtype, plan.arch)
        else:
            merge = MergeSpec((), (spec.width,), wide, spec.index_dtype)
            middle = schedules_cuda.softmax_merge_kernel(merge, plan.arch)
        self.kernels = first, middle, last

    def __call__(self, graph, operands: list[Tensor], results: list[Tensor]) -> None:
        first, middle, last = self.kernels
        (out,), parts = results, team_parts(graph, self.plan.part)
        arguments = edge_arguments(parts.whole, self.plan, graph.edge_ids, out.shape[0])
        of_parts = [out.new_empty((parts.whole.shape[0], self.width), dtype=self.wide) for _ in range(self.kept)]
        note(self, "")
        first.entry(*arguments, *operands, *of_parts)
        of_rows = [out.new_empty((graph.shape[0], self.width), dtype=self.wide) for _ in range(self.kept)]
        middle.entry(*edge_arguments(parts.sums, self.plan, None, 0), *of_parts, *of_rows)
        last.entry(*arguments, *operands, *(x.index_select(0, parts.row_of_part) for x in of_rows), out)


def sum_of_parts(width: int, dtype: str, index_dtype: str, arch: str, result: str = "") -> Kernel:
    """The kernel that adds up (parts, width) by rows. dtype: of the parts; result: of the sums, where it is another."""
    spec = AggregateSpec(arg(0), (Operand("column", (width,), dtype),), (width,), result or dtype, index_dtype)
    return aggregate_kernel(spec, TeamPlan(arch))
