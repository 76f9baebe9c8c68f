"""A rectified linear unit with a dropout behind it: on the way back both are one pass over the gradient.

PyTorch's functions stay two, and what they give is what it was. The unit's node in the graph of gradients is ours, so
that a dropout knows it, and has it remember in its mask where the unit gave 0. What the dropout sends back goes to the
unit's operand at once, unless somebody holds what is between the two, or has left a hook there.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.autograd import Function
from torch.compiler import is_dynamo_compiling

from ...ops.random.draws import torch_draws_so
from ...ops.random.dropout import drawn_like, scale_of
from ...ops.random.masked import OF_RESULT, masked, rectified
from ...structures.checks import FLOATING
from ..core.refusal import PASS
from ..lazy.history import hooks_of, place_of
from ..scopes import transformed

aten = torch.ops.aten
LEAST = 1 << 20
"""Numbers from which a pass over them is long beside what a node in Python costs."""
_PLAIN = (Tensor, torch.nn.Parameter)


def is_small(input) -> bool:
    """Whether a node in Python is as long as a pass over it."""
    return type(input) is Tensor and input.numel() < LEAST


def relu(input):
    """In the place of ``torch.relu``, which ``F.relu`` and ``nn.ReLU`` call."""
    if is_dynamo_compiling() or type(input) not in _PLAIN or input.numel() < LEAST or not input.requires_grad:
        return PASS
    if not torch.is_grad_enabled() or input.dtype not in FLOATING or not input.is_cpu:
        return PASS
    if input.layout is not torch.strided or transformed() is not None or not torch_draws_so():
        return PASS
    return _Unit.apply(input), None


def follows_unit(x: Tensor) -> bool:
    """Whether ``x`` is what such a unit gave, and a gradient may be asked for."""
    return type(x.grad_fn) is _Unit._backward_cls and torch.is_grad_enabled()


def dropout_of_unit(x: Tensor, p: float) -> Tensor:
    """``F.dropout(x, p)`` of an ``x`` that `follows_unit`."""
    return _Dropout.apply(x, x.grad_fn.place, p, weakref.ref(x), hooks_of(x))


class _Unit(Function):
    """place: stands for the operand, in its place in the graph of gradients."""

    @staticmethod
    def forward(ctx, x):
        out = aten.relu(x)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(out)
        ctx.place = place_of(x)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors  # of a result that was written to, PyTorch's error
        return None if grad is None else aten.threshold_backward(grad, out, 0)


class _Dropout(Function):
    """The dropout of what a unit gave. Its inputs are that, and what the unit was given."""

    @staticmethod
    def forward(ctx, x, place, p, between, hooks):
        mask = drawn_like(x, 1 - p)
        ctx.save_for_backward(mask)
        ctx.p, ctx.between, ctx.hooks = p, between, hooks
        return rectified(x, mask, scale_of(p, x.dtype), OF_RESULT)

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors
        scale = scale_of(ctx.p, grad.dtype)
        if ctx.between() is not None or ctx.hooks:
            return masked(None, (grad, mask & 1), (scale, False)), None, None, None, None
        return None, _of_both(grad, mask, scale), None, None, None


def _of_both(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of what a unit was given, from that of the dropout behind it. mask: knows where the unit gave 0."""
    return masked(None, (grad, mask), (scale, True))
