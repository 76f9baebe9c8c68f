"""The ways that attention, its gradient and several sums can run on a GPU.

Rows that are very long are cut into parts, each a team's work. A part has its own maximum, sum and sum of
values, and a second pass makes those of the row of them (Dao et al., Flash-Decoding, 2023). What the gradient needs of
an edge depends on its row's results alone, so parts take copies of these; sums over rows are added up from those over
parts. Nothing is added atomically.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...compiler.language.types import ACCUMULATOR
from ...planner.cuda.rows import TeamPartPlan, TeamPlan
from ..core.arguments import kernel_arguments
from ..core.executable import builds
from ..core.last_run import note
from ..message.executables.aggregation import at_parts
from ..message.executables.parts_cuda import team_parts
from . import schedules_cuda
from .executables import OnRows, Spec, kernel_of
from .programs.attention import AttentionSpec
from .programs.attention_gradient import GradientSpec
from .programs.softmax_merge import MergeSpec
from .programs.sums import SumsSpec
from .softmax_cuda import sum_of_parts


@builds(AttentionSpec, TeamPlan)
@builds(GradientSpec, TeamPlan)
@builds(SumsSpec, TeamPlan)
def on_gpu(spec: Spec, plan: TeamPlan) -> OnRows:
    return OnRows(plan, spec.operands, spec.numbered, kernel_of(schedules_cuda, spec, plan))


class _InParts(OnRows):
    """A kernel over parts of rows."""

    def _of_parts(self, graph, operands) -> tuple:
        """(parts of the rows, leading arguments of a kernel over them)."""
        parts = team_parts(graph, self.plan.part)
        numbers = graph.edge_ids if self.numbered else None
        given = at_parts(self.places, operands, parts.row_of_part)
        return parts, kernel_arguments(parts.whole, 1, self.places, self.widths, given, numbers, "teams")


@builds(AttentionSpec, TeamPartPlan)
class AttentionInParts(_InParts):
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
class SumsInParts(_InParts):
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
