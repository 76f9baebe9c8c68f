"""``gsb.edge_softmax``: softmax of scores over the edges into each destination, or out of each source."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import ClassVar

import torch
from torch import Tensor
from torch.autograd import Function

from ...compiler.cache.bounded import shared
from ...compiler.cache.kernel import Kernel
from ...planner.cpu.spmm import group_count
from ...planner.plan import Plan, the_one
from ...runtime import devices
from ...runtime.layout import compact, kernel_ready
from ...runtime.memory import empty
from ...runtime.type_names import type_name
from ...structures.graph import Graph
from ..core.arguments import structure_arguments
from ..core.operands import (
    check_dense,
    check_graph,
    check_kernels_for,
    check_rows,
    check_traced,
    check_written_out,
    is_plain,
)
from ..core.ran import note
from ..message.calls import flat
from ..message.checks import check_choice
from ..message.gradients import aggregate, edge_map
from ..message.message_op import message_op
from .programs.edge_softmax import EdgeSoftmaxSpec
from .schedules_cpu import edge_softmax_kernel
from .softmax_cuda import run_softmax

_executables = shared("kernels of the softmax over edges")
_ROW_SUM = message_op("mul(x0, x1)", ("edge", "edge"), "sum")
_GRADIENT = message_op("mul(x0, sub(x1, x2))", ("edge", "edge", "row"))


def edge_softmax(graph: Graph, scores: Tensor, norm_by: str = "dst") -> Tensor:
    """``out[e] = exp(scores[e]) / sum of exp(scores) over the edges with the same end``, for each feature apart.

    Args:
        graph: structure of shape (n_dst, n_src).
        scores: (E, ...) in the user's edge order, float32, float64, bfloat16 or float16, of any strides.
        norm_by: ``"dst"``: over the edges into each destination; ``"src"``: over those out of each source.

    Returns:
        (E, ...), contiguous, in the type of ``scores``. The maximum is subtracted first, and half types are computed in
        float32. Where scores of one end are all -inf, or hold a NaN or +inf, its weights are NaN. Gradients of any
        order. Autocast keeps the type; works under ``torch.compile``.

    Raises:
        TypeError: ``scores`` is not a dense floating tensor.
        ValueError: a shape or device does not fit the graph, or ``norm_by`` is unknown.
    """
    from .library import edge_softmax_operator

    check_graph("edge_softmax", graph)
    check_choice("edge_softmax", "norm_by", norm_by, ("dst", "src"))
    check_edges(graph, "scores", scores)
    if not is_plain(scores):
        check_traced("edge_softmax", ("scores",), (scores,), graph.device)
        return edge_softmax_operator(graph, scores, norm_by == "src")
    check_written_out("edge_softmax", "scores", scores)
    check_kernels_for("edge_softmax", graph)
    return softmax_edges(graph if norm_by == "dst" else graph.transpose(), scores)


def softmax_edges(graph, scores: Tensor) -> Tensor:
    """The softmax over each row of ``graph``, of scores that passed the checks, with gradients of any order."""
    if torch.is_grad_enabled() and scores.requires_grad:
        return EdgeSoftmax.apply(graph, scores)
    return run_edge_softmax(graph, scores)


def run_edge_softmax(graph, scores: Tensor) -> Tensor:
    """Forward only: the softmax of (E, ...) over each row of ``graph``."""
    return run(graph, (scores,), False, False)


def run_edge_softmax_backward(graph, out: Tensor, sds: Tensor) -> Tensor:
    """Forward only: the gradient in DGL's convention: ``sds - out * sum of sds over the row``, with sds = out * grad.

    ``out`` and ``sds`` are (E, ...) of one shape and type.
    """
    return run(graph, (out, sds), True, True)


class EdgeSoftmax(Function):
    @staticmethod
    def forward(ctx, graph, scores):
        ctx.graph = graph
        out = run_edge_softmax(graph, scores)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again
            return None, edge_map(_GRADIENT, ctx.graph, (), out, grad, aggregate(_ROW_SUM, ctx.graph, out, grad))
        return None, run(ctx.graph, (out, grad), True, False)


def run(graph, operands: tuple[Tensor, ...], gradient: bool, product: bool) -> Tensor:
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
        run_softmax(graph, given, flat(out, edges, width), gradient, product, arch)
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


def check_edges(graph: Graph, name: str, x) -> None:
    """``x`` is a dense floating tensor with a row per edge."""
    check_dense("edge_softmax", name, x)
    if x.dim() == 0:
        raise ValueError(f"edge_softmax: {name} must have a row per edge of the graph, got a tensor without dimensions")
    check_rows("edge_softmax", name, x, graph.num_edges, "edge", graph)
