"""The gradient of what is kept of a dense matrix of weights, those that were pruned with zeros among them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..ops.core.operator import Operator, recorded
from ..ops.core.transforms import transformed

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
    # compiled programs fuse this, and transformed functions know derivatives of every kind of it
    if torch.compiler.is_compiling() or transformed():
        return torch.where(bits != 0, values, 0)
    found: Tensor = recorded(_TRAINED, None, (values, bits), (owned,))
    return found


def _masked(x: Tensor, bits: Tensor) -> Tensor:
    """x where bits are set, else 0."""
    found: Tensor = torch.where(bits != 0, x, 0) if transformed() else recorded(_MASKED, None, (x, bits))
    return found


def _clear(nothing: None, operands: Any, attributes: Any) -> Tensor:
    """x where bits are set, else 0. The bits are what is cleared: 0 * Inf would be NaN, and choosing takes longer."""
    x, bits = operands
    return (x.view(bits.dtype) & bits).view(x.dtype)


def _gradients(nothing: None, attributes: Any, saved: Any, memo: None, needed: Any, g: Tensor) -> tuple[Tensor, None]:
    (bits,) = saved
    if True in attributes and not torch.is_grad_enabled():  # owned
        g.view(bits.dtype).bitwise_and_(bits)
        return g, None
    return _masked(g, bits), None


def _bits_alone(attributes: Any, operands: Any, result: Tensor) -> tuple[Any, None]:
    return operands[1:], None


def _as_it_is(nothing: None, operands: Any, attributes: Any) -> Tensor:
    """x, which is 0 where no bits are set: nothing is to be done but in its gradient."""
    found: Tensor = operands[0].view_as(operands[0])
    return found


_MASKED = Operator("masked_bits", _clear, _gradients, saved=_bits_alone)
_TRAINED = Operator("trained", _as_it_is, _gradients, saved=_bits_alone)
"""Attributes: (whether the gradient may be written to,)."""
