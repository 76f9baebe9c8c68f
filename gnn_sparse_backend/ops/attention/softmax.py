"""The boundary to the kernels of the softmax over edges: forward only, no autograd, operands already validated.

On a GPU rows are a team's work each. On a graph with very long rows these are cut into parts, in three passes: the
maximum and the sum of each part, those of each row from its parts, and the weights of the edges of each part. Nothing
is added atomically.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from ...compiler.cache.bounded import shared
from ...compiler.cache.kernel import Kernel
from ...compiler.language.types import ACCUMULATOR
from ...compiler.own_schedules import in_force
from ...planner.cpu.rows import RowPlan
from ...planner.cpu.spmm import group_count
from ...planner.cuda.plan import CudaPlan
from ...planner.cuda.rows import LanePlan, TeamPartPlan, TeamPlan
from ...planner.cuda.strategies import plan_softmax
from ...planner.plan import interned
from ...runtime import devices
from ...runtime.layout import compact, kernel_ready
from ...runtime.memory import empty
from ...runtime.type_names import accumulator_of, type_name
from ..core.arguments import edge_arguments
from ..core.executable import OnEdges, OnList, settle_list
from ..core.last_run import note
from ..core.plans_cuda import longest_of, problem_of_rows
from ..message.calls import flat
from ..message.executables.parts_cuda import team_parts
from ..message.programs.aggregate import AggregateSpec
from ..message.programs.message import arg
from ..message.programs.operands import Operand
from ..message.schedules_cuda import aggregate_kernel
from . import schedules_cpu, schedules_cuda
from .programs.edge_softmax import EdgeSoftmaxSpec
from .programs.softmax_merge import MergeSpec

_executables = shared("kernels of the softmax over edges")


def run_edge_softmax(graph, scores: Tensor) -> Tensor:
    """Forward only: the softmax of (E, ...) over each row of ``graph``."""
    return run_softmax(graph, (scores,), False, False)


def run_edge_softmax_backward(graph, out: Tensor, sds: Tensor) -> Tensor:
    """Forward only: the gradient in DGL's convention: ``sds - out * sum of sds over the row``, with sds = out * grad.

    ``out`` and ``sds`` are (E, ...) of one shape and type.
    """
    return run_softmax(graph, (out, sds), True, True)


def run_softmax(graph, operands: tuple[Tensor, ...], gradient: bool, product: bool, finite: bool = False) -> Tensor:
    """The kernel of the softmax of one edge array, or of the gradient from two, of one shape and type.

    product: the second array is out * grad. finite: as in `EdgeSoftmaxSpec`.
    """
    x = operands[0]
    edges, width = x.shape[0], prod(x.shape[1:])
    if edges == 0 or width == 0:
        return x.new_empty(x.shape)
    if graph.listed is not None and edges == graph.num_edges and not finite:
        settle_list(graph, operands)
        if graph.listed is not None:
            return _on_list(graph, operands, width, gradient, product)
    arch = devices.arch_of(graph.device)
    # edges that the graph has not got, if it is a part of a larger one, stay zero
    out = empty(x, *x.shape) if edges == graph.num_edges else x.new_zeros(x.shape)
    ready = compact if arch else kernel_ready
    given = [ready(a).reshape(edges, width).contiguous() for a in operands]
    types = x.dtype, graph.indices.dtype, graph.edge_ids is not None
    if arch:
        key = run_softmax, width, x.dtype, gradient, product, finite, arch, in_force.generation
        executable = graph.calls.get(key)
    else:
        groups = group_count(edges, graph.shape[0], width, torch.get_num_threads())
        key = *types, width, gradient, product, finite, groups, in_force.generation
        executable = _executables.get(key)
    if executable is None:
        spec = EdgeSoftmaxSpec(width, *map(type_name, types[:2]), types[2], product, finite)
        if arch:
            plan = plan_softmax(problem_of_rows(graph, arch, width, longest_of(graph), "max:"))
            executable = graph.calls.keep(key, _on_gpu(spec, gradient, plan))
        else:
            kernel = schedules_cpu.edge_softmax_kernel(spec, gradient, groups > 1)
            executable = _executables.keep(key, OnEdges(kernel, interned(RowPlan(groups))))
    executable(graph, given, [flat(out, edges, width)])
    return out


def _on_list(graph, operands: tuple[Tensor, ...], width: int, gradient: bool, product: bool) -> Tensor:
    x = operands[0]
    key = x.dtype, graph.some_index.dtype, None, width, gradient, product
    executable = _executables.get(key)
    if executable is None:
        spec = EdgeSoftmaxSpec(width, *map(type_name, key[:2]), False, product)
        executable = _executables.keep(key, OnList(schedules_cpu.listed_softmax_kernel(spec, gradient)))
    wide = accumulator_of(x.dtype)
    given = [kernel_ready(a).reshape(x.shape[0], width).contiguous() for a in operands]
    # for the maximum and the sum of each row, for the gradient the sum alone
    given += [empty(x, graph.shape[0], width, dtype=wide) for _ in range(1 if gradient else 2)]
    out = empty(x, *x.shape)
    executable(graph, given, [flat(out, x.shape[0], width)])
    return out


def _on_gpu(spec: EdgeSoftmaxSpec, gradient: bool, plan: CudaPlan) -> OnEdges | _InParts:
    if isinstance(plan, TeamPartPlan):
        return _InParts(spec, gradient, plan)
    return OnEdges(_kernel_on_gpu(spec, gradient, plan), plan)


def _kernel_on_gpu(spec: EdgeSoftmaxSpec, gradient: bool, plan: CudaPlan) -> Kernel:
    lanes = plan.lanes if isinstance(plan, LanePlan) else 0
    return schedules_cuda.edge_softmax_kernel(spec, gradient, plan.arch, lanes)


class _InParts:
    """An executable of a softmax over edges, or of its gradient, by parts of rows."""

    def __init__(self, spec: EdgeSoftmaxSpec, gradient: bool, plan: TeamPartPlan):
        self.plan, self.kept = plan, 1 if gradient else 2  # sums alone, or maxima and sums
        wide = ACCUMULATOR[spec.dtype]
        self.wide, self.width = getattr(torch, wide), spec.width
        first, last = (_kernel_on_gpu(replace(spec, stage=stage), gradient, plan.rest) for stage in ("parts", "apply"))
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
