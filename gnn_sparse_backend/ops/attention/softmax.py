"""The boundary to the kernels of the softmax over edges: forward only, no autograd, operands already validated."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from torch import Tensor

from ...compiler.cache.bounded import shared
from ...compiler.own_schedules import in_force
from ...deferred import later
from ...planner.cpu.rows import RowPlan
from ...planner.cpu.spmm import group_count
from ...planner.plan import interned
from ...runtime import devices
from ...runtime.layout import compact, kernel_ready
from ...runtime.memory import empty
from ...runtime.threads import planned_threads
from ...runtime.type_names import accumulator_of, type_name
from ..core.executable import OnEdges, OnList, settle_list
from ..message.calls import flat
from . import schedules_cpu
from .programs.edge_softmax import EdgeSoftmaxSpec

if TYPE_CHECKING:
    from . import executables_cuda
else:
    executables_cuda = later(__name__, ".executables_cuda")

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
        groups = group_count(edges, graph.shape[0], width, planned_threads())
        key = *types, width, gradient, product, finite, groups, in_force.generation
        executable = _executables.get(key)
    if executable is None:
        spec = EdgeSoftmaxSpec(width, *map(type_name, types[:2]), types[2], product, finite)
        if arch:
            executable = graph.calls.keep(key, executables_cuda.planned_softmax(graph, spec, gradient, arch))
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
