"""A dropout, and the product with what it drew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...runtime.without_kernels import defines, defines_in_programs
from ..random.dropout import scale_of
from ..random.masked import DEAD
from .messages import wide_of


@defines("masked")
def masked(nothing: None, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """x times the scale where the mask is not 0, else times 0; 0 where it says that a rectified unit gave 0."""
    (x, mask), (scale, dead) = operands, attributes
    wide = wide_of(x)
    factor = torch.where(mask != 0, scale, 0.0).to(wide)
    found = x.to(wide) * factor
    return (torch.where(mask >= DEAD, 0, found) if dead else found).to(x.dtype)


@defines_in_programs("dropped")
def dropped(nothing: None, operands: Sequence[Tensor], attributes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """What is left of x, or of max(x, 0), and the mask, of which PyTorch draws what our kernels do."""
    (x,), (p, _, of_unit) = operands, attributes
    mask = torch.empty_like(x, dtype=torch.uint8).bernoulli_(1 - p)
    found = masked(None, (x, mask), (scale_of(p, x.dtype), False))
    if not of_unit:
        return found, mask
    dead = x <= 0
    return torch.where(dead, 0.0, found).to(x.dtype), mask + DEAD * dead.to(mask.dtype)
