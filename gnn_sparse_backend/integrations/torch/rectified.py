"""A rectified linear unit with a dropout behind it: on the way back both are one pass over the gradient.

PyTorch's functions stay two, and what they give is what it was. The unit's node in the graph of gradients is ours, so
that a dropout knows it, and has it remember in its mask where the unit gave 0. The gradient that the dropout sends is
lazy: the unit's node takes it uncomputed, and whoever else looks at it (a hook, ``retain_grad``, a sum with another
gradient) has it computed first, as it would have been.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function
from torch.compiler import is_dynamo_compiling

from ...ops.core.operator import Operator
from ...ops.random.draws import torch_draws_so
from ...ops.random.dropout import drawn_like, scale_of
from ...ops.random.masked import OF_RESULT, masked, rectified
from ...structures.checks import FLOATING
from ..core.refusal import PASS
from ..lazy import LazyTensor, lazy_tensor, transformed, value
from ..lazy.ends import Host
from ..lazy.recipes import Recipe, version

aten = torch.ops.aten
LEAST = 1 << 20
"""Numbers from which a pass over them is long beside what a node in Python costs."""
_PLAIN = (Tensor, torch.nn.Parameter)


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
    return _DROPOUT(None, (x,), (p,))


class _Unit(Function):
    @staticmethod
    def forward(ctx, x):
        out = aten.relu(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors  # of a result that was written to, PyTorch's error
        if type(grad) is LazyTensor:
            recipe = grad._recipe
            if type(recipe) is _Dropped and recipe.pending():
                return recipe.behind_unit()
            grad = value(grad, "the gradient of a message that was used below autograd")
        return aten.threshold_backward(grad, out, 0)


class _Gradients(Host):
    name, message, of_edges = "torch", "gradient", False

    def compute(self, recipe: Recipe, reason: str) -> Tensor:
        return recipe.reference()


_HOST = _Gradients.__new__(_Gradients)  # nothing of it is replaced in a framework


class _Dropped(Recipe):
    """The gradient that a dropout sends to the unit before it. mask: marked where the unit gave 0."""

    __slots__ = ("mask", "scale")

    def __init__(self, grad: Tensor, mask: Tensor, scale: float):
        super().__init__(_HOST, grad.shape, grad.dtype, (grad,), (version(grad),))
        self.mask, self.scale = mask, scale

    def ends(self):
        return ()

    def on(self, operands):
        return _Dropped(operands[0], self.mask, self.scale)

    def behind_unit(self) -> Tensor:
        """The gradient of the unit's operand."""
        self.check_unmodified()
        return masked.run(None, (self.operands[0], self.mask), (self.scale, True))

    def reference(self):
        return masked(None, (self.operands[0], self.mask & 1), (self.scale, False))


def _record(structure, operands, attributes, needed):
    (x,), (p,) = operands, attributes
    mask = drawn_like(x, 1 - p)
    return rectified(x, mask, scale_of(p, x.dtype), OF_RESULT), (mask,), None


def _gradients(structure, attributes, saved, memo, needed, grad):
    (mask,), scale = saved, scale_of(attributes[0], grad.dtype)
    if torch.is_grad_enabled() or transformed() is not None or type(grad) not in _PLAIN:
        return [masked(None, (grad, mask & 1), (scale, False))]
    return [lazy_tensor(_Dropped(grad, mask, scale))]


_DROPOUT = Operator("dropped", run=lambda *call: _record(*call, ())[0], gradients=_gradients, record=_record)
