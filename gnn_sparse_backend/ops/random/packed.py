"""Masks of bytes in bits, for what is kept until the backward pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .masked import flat


class Packed(NamedTuple):
    """Shape and strides of the mask that bits stand for, which has no gaps."""

    shape: torch.Size
    strides: tuple[int, ...]


def packed(mask: Tensor) -> tuple[Tensor, Packed]:
    """((n / 8, rounded up,) uint8 with a bit for each element of a mask in the order of memory, what `unpacked` asks
    for). mask: uint8 on the CPU without gaps; what is not 0 is a 1.
    """
    return torch.from_numpy(np.packbits(flat(mask).numpy())), Packed(mask.shape, mask.stride())


def unpacked(bits: Tensor, of: Packed) -> Tensor:
    """The mask that was `packed`: uint8, 0 or 1."""
    found = torch.from_numpy(np.unpackbits(bits.numpy(), count=of.shape.numel()))
    return found.as_strided(of.shape, of.strides)
