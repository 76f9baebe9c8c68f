"""Softmax over edges on a GPU: forward only, operands already validated.

Rows are a team's work each. On a graph with very long rows these are cut into parts, in three passes: the maximum and
the sum of each part, those of each row from its parts, and the weights of the edges of each part. Nothing is added
atomically.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ...compiler.cache.kernel import Kernel
from ...planner.cuda.plan import CudaPlan, plan_cuda, plan_softmax
from ...runtime.type_names import type_name
from ..core.arguments import structure_arguments
from ..core.plans_cuda import longest_of
from ..core.ran import note
from ..message.executables.parts_cuda import parts_of
from ..message.programs.aggregate import AggregateSpec
from ..message.programs.message import arg
from ..message.programs.operands import ACCUMULATOR, Operand
from ..message.schedules_cuda import aggregate_kernel
from .programs.edge_softmax import EdgeSoftmaxSpec
from .programs.softmax_merge import MergeSpec
from .schedules_cuda import edge_softmax_kernel, softmax_merge_kernel


def run_softmax(graph, given: list[Tensor], out: Tensor, gradient: bool, product: bool, arch: str) -> None:
    """Fill ``out``, (edges, width), with the softmax of one contiguous array of that shape, or with the gradient from
    two.

    product: as of an `EdgeSoftmaxSpec`.
    """
    key = run_softmax, out.shape[1], out.dtype, gradient, product, arch
    run = graph.calls.get(key)
    if run is None:
        width, numbers = out.shape[1], graph.edge_ids
        plan = plan_softmax(arch, graph.shape[0], graph.num_edges, width, longest_of(graph))
        types = type_name(out.dtype), type_name(graph.indices.dtype)
        spec = EdgeSoftmaxSpec(width, *types, numbers is not None, product)
        run = (_InParts if plan.longest_part else _Whole)(spec, gradient, plan)
        graph.calls.keep(key, run)
    run(graph, given, [out])


class _Softmax:
    """An executable of a softmax over edges, or of its gradient. Results are those of every edge."""

    variants: ClassVar[Mapping[str, str]] = {}

    def __init__(self, plan: CudaPlan, *kernels: Kernel):
        self.plan, self.kernels = plan, kernels

    def workspace(self, structure) -> int:
        """Bytes beside operands and results."""
        return 0


class _Whole(_Softmax):
    """Over whole rows."""

    def __init__(self, spec: EdgeSoftmaxSpec, gradient: bool, plan: CudaPlan):
        super().__init__(plan, edge_softmax_kernel(spec, gradient, plan.arch, plan.lanes))

    def __call__(self, graph, operands: list[Tensor], results: list[Tensor]) -> None:
        note(self, "")
        self.kernels[0].entry(*_arguments(graph, graph.edge_ids, results[0].shape[0]), *operands, *results)


class _InParts(_Softmax):
    """Over parts of rows."""

    def __init__(self, spec: EdgeSoftmaxSpec, gradient: bool, plan: CudaPlan):
        self.longest, self.kept = plan.longest_part, 1 if gradient else 2  # sums alone, or maxima and sums
        self.wide, self.width = getattr(torch, ACCUMULATOR[spec.dtype]), spec.width
        first, last = (
            edge_softmax_kernel(
                EdgeSoftmaxSpec(spec.width, spec.dtype, spec.index_dtype, spec.numbered, spec.product, stage),
                gradient,
                plan.arch,
                plan.lanes,
            )
            for stage in ("parts", "apply")
        )
        middle = (sum_of_parts if gradient else merge_of_parts)(
            spec.width, ACCUMULATOR[spec.dtype], spec.index_dtype, plan.arch
        )
        super().__init__(plan, first, middle, last)

    def __call__(self, graph, operands: list[Tensor], results: list[Tensor]) -> None:
        first, middle, last = self.kernels
        (out,), parts = results, parts_of(graph, self.longest)
        arguments = _arguments(parts.whole, graph.edge_ids, out.shape[0])
        of_parts = [out.new_empty((parts.whole.shape[0], self.width), dtype=self.wide) for _ in range(self.kept)]
        note(self, "")
        first.entry(*arguments, *operands, *of_parts)
        of_rows = [out.new_empty((graph.shape[0], self.width), dtype=self.wide) for _ in range(self.kept)]
        middle.entry(*_arguments(parts.sums, None, 0), *of_parts, *of_rows)
        last.entry(*arguments, *operands, *(x.index_select(0, parts.row_of_part) for x in of_rows), out)

    def workspace(self, structure) -> int:
        rows = parts_of(structure, self.longest).whole.shape[0] + structure.shape[0]
        return rows * self.kept * self.width * self.wide.itemsize


def merge_of_parts(width: int, dtype: str, index_dtype: str, arch: str):
    """The kernel that makes maxima and sums of parts, (parts, width), those of rows, the sums inverted."""
    return softmax_merge_kernel(MergeSpec((), (width,), dtype, index_dtype), arch)


def sum_of_parts(width: int, dtype: str, index_dtype: str, arch: str, result: str = ""):
    """The kernel that adds up (parts, width) by rows. dtype: of the parts; result: of the sums, where it
    is another.
    """
    spec = AggregateSpec(arg(0), (Operand("column", (width,), dtype),), (width,), result or dtype, index_dtype)
    return aggregate_kernel(spec, plan_cuda(arch))


def _arguments(structure, numbers: Tensor | None, edges: int) -> list:
    """The leading arguments of a kernel over a graph or its parts. numbers: of the edges, of which there are so
    many.
    """
    sizes, arrays = structure_arguments(structure, 1, "teams")
    return [*sizes, *arrays] if numbers is None else [*sizes, edges, *arrays, numbers]
