"""Grouped products and sums in ``torch.library``, for ``torch.compile``, fake tensors and tensor subclasses.

The operators:

    gsb::order_by_segment   (offsets, order) of rows that belong to segments ``index``
    gsb::grouped_mm         rows of ``a`` times the matrix of their segment; order: empty where rows are in order
    gsb::grouped_sum        its gradient with respect to the matrices
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...formats.counts import prefix_sums
from ...runtime import devices
from ...runtime.memory import check_written_out
from ...structures.build import index_dtype
from ...structures.checks import check_range, plain_tensor
from ...structures.segments import Segments, check_offsets
from ...structures.unsynchronised import order_in_range, segments_of_index, segments_of_offsets
from ..core.operands import check_dense
from .executables import run_grouped_mm, run_grouped_sum

torch.library.define(
    "gsb::order_by_segment", "(Tensor index, SymInt num_segments) -> (Tensor, Tensor)", tags=torch.Tag.pt2_compliant_tag
)
torch.library.define(
    "gsb::grouped_mm", "(Tensor a, Tensor b, Tensor offsets, Tensor? order) -> Tensor", tags=torch.Tag.pt2_compliant_tag
)
torch.library.define(
    "gsb::grouped_sum",
    "(Tensor a, Tensor g, Tensor offsets, Tensor? order) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)


def segment_mm_operator(a: Tensor, b: Tensor, seglen) -> Tensor:
    """``segment_mm`` by the operators."""
    if isinstance(seglen, Segments):
        offsets, order = seglen.offsets, seglen.order
    else:
        seglen = _index("seglen", seglen)
        offsets, order = prefix_sums(seglen), None
    return torch.ops.gsb.grouped_mm(a, b, offsets, order)


def gather_mm_operator(a: Tensor, b: Tensor, idx_b, idx_a) -> Tensor:
    """``gather_mm`` by the operators; rows that an index names are copied."""
    if idx_a is not None:
        a = a.index_select(0, _index("idx_a", idx_a))
    if isinstance(idx_b, Segments):
        offsets, order = idx_b.offsets, idx_b.order
    else:
        offsets, order = torch.ops.gsb.order_by_segment(_index("idx_b", idx_b), b.shape[0])
    return torch.ops.gsb.grouped_mm(a, b, offsets, order)


def _index(name: str, index) -> Tensor:
    if not isinstance(index, Tensor) or index.dtype not in (torch.int32, torch.int64) or index.dim() != 1:
        what = f"{index.dtype} of shape {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
        raise TypeError(f"{name} must be a 1-D int32 or int64 torch tensor where a program is traced, got {what}")
    if not torch.compiler.is_compiling():
        check_written_out(name, index)
    return index.long()


@torch.library.impl("gsb::order_by_segment", "default")
def _order(index, num_segments):
    segments = segments_of_index(index, num_segments, index.device)
    order = torch.arange(index.numel(), device=index.device) if segments.order is None else segments.order.long()
    return segments.offsets.long(), order


@torch.library.register_fake("gsb::order_by_segment")
def _order_fake(index, num_segments):
    return index.new_empty(num_segments + 1, dtype=torch.int64), index.new_empty(index.shape, dtype=torch.int64)


def _segments(operator: str, offsets: Tensor, order: Tensor | None, rows: int) -> Segments:
    offsets = plain_tensor(offsets)
    order = None if order is None else plain_tensor(order)
    try:
        if order is not None and order.numel() != rows:
            raise ValueError(f"order must name each of {rows} rows, got {order.numel()}")
        if not devices.on_cpu(offsets.device):
            found = segments_of_offsets(offsets, rows, offsets.device)
            return (
                found
                if order is None
                else Segments(found.offsets, order_in_range(order).to(found.offsets.dtype), rows, unsynchronised=True)
            )
        if order is None:
            return Segments.from_offsets(offsets, rows)
        check_offsets(offsets, rows)
        check_range("order", order, rows, "rows")
        if bool((torch.bincount(order, minlength=rows) != 1).any()):
            raise ValueError("order must name every row once")
    except ValueError as error:
        raise ValueError(f"{operator}: {error}") from None
    dtype = index_dtype((offsets.numel(), 0), rows)
    return Segments(offsets.to(dtype), order.to(dtype), rows)


@torch.library.impl("gsb::grouped_mm", "default")
def _mm(a, b, offsets, order):
    check_dense("grouped_mm", "a", a)
    if a.dim() != 2 or b.dim() != 3 or a.shape[1] != b.shape[1] or a.dtype != b.dtype:
        raise ValueError(
            f"grouped_mm: a {tuple(a.shape)} of {a.dtype} does not go with b {tuple(b.shape)} of {b.dtype}"
        )
    if offsets.numel() != b.shape[0] + 1:
        raise ValueError(f"grouped_mm: {b.shape[0]} matrices want {b.shape[0] + 1} offsets, got {offsets.numel()}")
    return run_grouped_mm(_segments("grouped_mm", offsets, order, a.shape[0]), plain_tensor(a), plain_tensor(b))


@torch.library.impl("gsb::grouped_sum", "default")
def _sum(a, g, offsets, order):
    check_dense("grouped_sum", "a", a)
    if a.dim() != 2 or g.dim() != 2 or a.shape[0] != g.shape[0] or a.dtype != g.dtype:
        raise ValueError(
            f"grouped_sum: a {tuple(a.shape)} of {a.dtype} does not go with g {tuple(g.shape)} of {g.dtype}"
        )
    return run_grouped_sum(_segments("grouped_sum", offsets, order, a.shape[0]), plain_tensor(a), plain_tensor(g))


@torch.library.register_fake("gsb::grouped_mm")
def _mm_fake(a, b, offsets, order):
    return a.new_empty((a.shape[0], b.shape[2]))


@torch.library.register_fake("gsb::grouped_sum")
def _sum_fake(a, g, offsets, order):
    return a.new_empty((offsets.shape[0] - 1, a.shape[1], g.shape[1]))


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _mm_backward(ctx, grad):
    a, b, offsets, order = ctx.saved_tensors
    grad_a = grad_b = None
    if ctx.needs_input_grad[0]:
        grad_a = torch.ops.gsb.grouped_mm(grad, b.transpose(1, 2), offsets, order)
    if ctx.needs_input_grad[1]:
        grad_b = torch.ops.gsb.grouped_sum(a, grad, offsets, order)
    return grad_a, grad_b, None, None


def _sum_backward(ctx, grad):
    a, g, offsets, order = ctx.saved_tensors
    grad_a = grad_g = None
    if ctx.needs_input_grad[0]:
        grad_a = torch.ops.gsb.grouped_mm(g, grad.transpose(1, 2), offsets, order)
    if ctx.needs_input_grad[1]:
        grad_g = torch.ops.gsb.grouped_mm(a, grad, offsets, order)
    return grad_a, grad_g, None, None


torch.library.register_autograd("gsb::grouped_mm", _mm_backward, setup_context=_save)
torch.library.register_autograd("gsb::grouped_sum", _sum_backward, setup_context=_save)
