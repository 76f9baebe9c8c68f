"""The boundary to the kernels of the softmax over edges: forward only, no autograd, operands already validated."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from ...compiler.cache.bounded import shared
from ...compiler.cache.kernel import Kernel
from ...planner.cpu.spmm import group_count
from ...planner.plan import Plan, the_one
from ...runtime import devices
from ...runtime.layout import compact, kernel_ready
from ...runtime.memory import empty
from ...runtime.type_names import type_name
from ..core.arguments import structure_arguments
from ..core.ran import note
from ..message.calls import flat
from .programs.edge_softmax import EdgeSoftmaxSpec
from .schedules_cpu import edge_softmax_kernel
from .softmax_cuda import run_softmax as softmax_on_gpu

_executables = shared("kernels of the softmax over edges")


def run_edge_softmax(graph, scores: Tensor) -> Tensor:
    """Forward only: the softmax of (E, ...) over each row of ``graph``."""
    return run_softmax(graph, (scores,), False, False)


def run_edge_softmax_backward(graph, out: Tensor, sds: Tensor) -> Tensor:
    """Forward only: the gradient in DGL's convention: ``sds - out * sum of sds over the row``, with sds = out * grad.

    ``out`` and ``sds`` are (E, ...) of one shape and type.
    """
    return run_softmax(graph, (out, sds), True, True)


def run_softmax(graph, operands: tuple[Tensor, ...], gradient: bool, product: bool) -> Tensor:
    """The kernel of the softmax of one edge array, or of the gradient from two, of one shape and type.

    product: the second array is out * grad.
    """
    x = operands[0]
    edges, width = x.shape[0], prod(x.shape[1:])
    if edges == 0 or width == 0:
        return x.new_empty(x.shape)
    numbers = graph.edge_ids
    arch = devices.arch_of(graph.device)
    # edges that the graph has not got, if it is a part of a larger one, stay zero
    out = empty(x, *x.shape) if edges == graph.num_edges else x.new_zeros(x.shape)
    ready = compact if arch else kernel_ready
    given = [ready(a).reshape(edges, width).contiguous() for a in operands]
    if arch:
        softmax_on_gpu(graph, given, flat(out, edges, width), gradient, product, arch)
        return out
    groups = group_count(edges, graph.shape[0], width, torch.get_num_threads())
    key = (x.dtype, graph.indices.dtype, numbers is not None, width, gradient, product, groups)
    executable = _executables.get(key)
    if executable is None:
        spec = EdgeSoftmaxSpec(width, type_name(x.dtype), type_name(graph.indices.dtype), numbers is not None, product)
        kernel = edge_softmax_kernel(spec, gradient, groups > 1)
        executable = _executables.keep(key, SoftmaxOnRows(the_one(Plan(groups)), kernel))
    executable(graph, given, [flat(out, edges, width)])
    return out


class SoftmaxOnRows:
    """An executable of a softmax over edges, or of its gradient, on the CPU."""

    variants: ClassVar[Mapping[str, str]] = {}

    def __init__(self, plan: Plan, kernel: Kernel):
        self.plan, self.kernels = plan, (kernel,)

    def __call__(self, graph, operands: list[Tensor], results: list[Tensor]) -> None:
        sizes, arrays = structure_arguments(graph, self.plan.groups, "nonzeros")
        numbers = graph.edge_ids
        order = () if numbers is None else (numbers,)
        edges = (results[0].shape[0],) if order else ()
        note(self, "")
        self.kernels[0].entry(*sizes, *edges, *arrays, *order, *operands, *results)

    def workspace(self, structure) -> int:
        """Bytes beside operands and results."""
        return 0
