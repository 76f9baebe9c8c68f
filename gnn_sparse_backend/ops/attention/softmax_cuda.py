"""The softmax over edges on a GPU: rows are a team's work each.

On a graph with very long rows these are cut into parts, in three passes: the maximum and the sum of each part, those of
each row from its parts, and the weights of the edges of each part. Nothing is added atomically.
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
from ..core.arguments import edge_arguments
from ..core.executable import OnEdges
from ..core.last_run import note
from ..core.plans_cuda import longest_of, problem_of_rows
from ..message.executables.parts_cuda import team_parts
from ..message.programs.aggregate import AggregateSpec
from ..message.programs.message import arg
from ..message.programs.operands import Operand
from ..message.schedules_cuda import aggregate_kernel
from . import schedules_cuda
from .programs.edge_softmax import EdgeSoftmaxSpec
from .programs.softmax_merge import MergeSpec


def planned(graph, spec: EdgeSoftmaxSpec, gradient: bool, arch: str) -> OnEdges | _InParts:
    """What runs a softmax, or its gradient, on a graph, by the plan of the rules."""
    plan = plan_softmax(problem_of_rows(graph, arch, spec.width, longest_of(graph), "max:"))
    if isinstance(plan, TeamPartPlan):
        return _InParts(spec, gradient, plan)
    return OnEdges(_kernel(spec, gradient, plan), plan)


def _kernel(spec: EdgeSoftmaxSpec, gradient: bool, plan: CudaPlan) -> Kernel:
    lanes = plan.lanes if isinstance(plan, LanePlan) else 0
    return schedules_cuda.edge_softmax_kernel(spec, gradient, plan.arch, lanes)


class _InParts:
    """An executable of a softmax over edges, or of its gradient, by parts of rows."""

    def __init__(self, spec: EdgeSoftmaxSpec, gradient: bool, plan: TeamPartPlan):
        self.plan, self.kept = plan, 1 if gradient else 2  # sums alone, or maxima and sums
        wide = ACCUMULATOR[spec.dtype]
        self.wide, self.width = getattr(torch, wide), spec.width
        first, last = (_kernel(replace(spec, stage=stage), gradient, plan.rest) for stage in ("parts", "apply"))
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
