"""The product with what a dropout drew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...runtime.without_kernels import defines
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
