"""The gradient of what is kept of a dense matrix of weights, those that were pruned with zeros among them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..ops.core.batched import in_batch

_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(places: Tensor, values: Tensor) -> Tensor:
    """All bits set at these places of a matrix like ``values``, flattened, and none elsewhere."""
    dtype = _BITS[values.element_size()]
    bits = torch.zeros(values.shape, dtype=dtype, device=values.device)
    bits.view(-1)[places] = -1
    return bits


def trained(values: Tensor, bits: Tensor, owned: bool = False) -> Tensor:
    """The values, 0 where there are no bits, of which those have no gradient, whatever the gradient is there.

    owned: nobody but the one operator that takes the result has its gradient, which may be written to.
    """
    # compiled programs fuse this, and transformed functions (torch.func) know derivatives of every kind of it
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return torch.where(bits != 0, values, 0)
    found: Tensor = _Trained.apply(values, bits, owned)
    return found


def _masked(x: Tensor, bits: Tensor) -> Tensor:
    """x where bits are set, else 0; of several gradients at once (`is_grads_batched`), too."""
    transformed = torch._C._are_functorch_transforms_active() or in_batch((x,))  # where bits have no rule
    found: Tensor = torch.where(bits != 0, x, 0) if transformed else _Masked.apply(x, bits)
    return found


class _Masked(torch.autograd.Function):
    """x where bits are set, else 0. The bits are what is cleared: 0 * Inf would be NaN, and choosing takes longer."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, bits: Tensor) -> Tensor:
        return (x.view(bits.dtype) & bits).view(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return _Masked.apply(g, *ctx.saved_tensors), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Tensor:
        found: Tensor = _Masked.apply(tangent, *ctx.saved_tensors)
        return found


class _Trained(torch.autograd.Function):
    """x, which is 0 where no bits are set: nothing is to be done but in its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, bits: Tensor, owned: bool) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, bool], output: Tensor) -> None:
        _, bits, ctx.owned = inputs
        ctx.save_for_backward(bits)
        ctx.save_for_forward(bits)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (bits,) = ctx.saved_tensors
        if ctx.owned and not torch.is_grad_enabled() and not in_batch((g,)):
            g.view(bits.dtype).bitwise_and_(bits)
            return g, None, None
        return _masked(g, bits), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _masked(tangent, *ctx.saved_tensors)
