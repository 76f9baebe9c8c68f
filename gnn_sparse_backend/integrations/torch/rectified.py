"""A rectified linear unit with a dropout behind it: on the way back both are one pass over the gradient.

PyTorch's functions stay two, and what they give is what it was. The unit's node in the graph of gradients is ours, so
that a dropout knows it, and has it remember in its mask where the unit gave 0. What the dropout sends back goes to the
unit's operand at once, unless somebody holds what is between the two, or has left a hook there.

With little memory (``gsb.enable(..., memory="low")``) what either keeps for that is bits. The unit then does not keep
its result, to which somebody may write.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.autograd import Function
from torch.compiler import is_dynamo_compiling

from ...ops.random.draws import torch_draws_so
from ...ops.random.dropout import drawn_like, scale_of
from ...ops.random.masked import DEAD, OF_RESULT, masked, rectified
from ...ops.random.packed import Packed, packed, unpacked
from ...structures.checks import FLOATING
from ..core.refusal import PASS
from ..core.registry import MEMORY
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
    """place: stands for the operand, in its place in the graph of gradients. of: None; or how the bits are kept that
    tell where the result is 0, in the place of the result.
    """

    @staticmethod
    def forward(ctx, x):
        out = aten.relu(x)
        ctx.set_materialize_grads(False)
        ctx.place, ctx.of = place_of(x), None
        if MEMORY.low:
            bits, ctx.of = packed((out <= 0).view(torch.uint8))
        ctx.save_for_backward(out if ctx.of is None else bits)
        return out

    @staticmethod
    def backward(ctx, grad):
        (kept,) = ctx.saved_tensors  # of a result that was written to, PyTorch's error
        if grad is None:
            return None
        if ctx.of is None:
            return aten.threshold_backward(grad, kept, 0)
        return _of_both(grad, unpacked(kept, ctx.of).add_(1), 1.0)


class _Dropout(Function):
    """The dropout of what a unit gave. Its inputs are that, and what the unit was given. of: None; or how the bits are
    kept of what was drawn and of where the unit gave 0.
    """

    @staticmethod
    def forward(ctx, x, place, p, between, hooks):
        mask = drawn_like(x, 1 - p)
        ctx.p, ctx.between, ctx.hooks, ctx.of = p, between, hooks, None
        out = rectified(x, mask, scale_of(p, x.dtype), OF_RESULT)
        if MEMORY.low:
            drawn, ctx.of = packed(mask & 1)
            ctx.save_for_backward(drawn, packed(mask.bitwise_right_shift_(1))[0])
        else:
            ctx.save_for_backward(mask)
        return out

    @staticmethod
    def backward(ctx, grad):
        mask = _mask(ctx.saved_tensors, ctx.of)
        scale = scale_of(ctx.p, grad.dtype)
        if ctx.between() is not None or ctx.hooks:
            return masked(None, (grad, mask & 1), (scale, False)), None, None, None, None
        return None, _of_both(grad, mask, scale), None, None, None


def _mask(kept: tuple[Tensor, ...], of: Packed | None) -> Tensor:
    """What was drawn, with ``DEAD`` more where the unit gave 0, of what is kept of it."""
    if of is None:
        return kept[0]
    drawn, dead = kept
    return unpacked(drawn, of).add_(unpacked(dead, of), alpha=DEAD)


def _of_both(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of what a unit was given, from that of the dropout behind it. mask: knows where the unit gave 0."""
    return masked(None, (grad, mask), (scale, True))
