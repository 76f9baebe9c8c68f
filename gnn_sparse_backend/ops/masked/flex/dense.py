"""Attention of all pairs, whose scores nothing changes: which of it PyTorch's own computes faster."""

from __future__ import annotations

import torch
from torch import Tensor

from ....compiler.codegen import host_target
from ..schedules_cpu import takes_tiles
from .arrangement import FEW
from .functions import SIDE

MANY_PAIRS, MANY_OF_HALF_TYPES = 1 << 16, 1 << 13
"""Pairs of few queries and their keys from which on reading keys takes longer than a call."""
MANY_ON_TILES = 1 << 14
"""Pairs of a head from which on products of tiles take longer than a call."""


def pytorch_is_faster(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether PyTorch's attention takes less time than kernels, or as much, for (batch, heads, length, width).

    Keys of few queries are read faster by kernels. So is bfloat16 multiplied where ``vdpbf16ps`` is faster than
    float32; processors with other instructions for it were not measured.
    """
    if query.dtype is torch.float16:
        return False
    (*planes, queries, width), keys = query.shape, key.shape[2]
    if queries <= FEW:
        many = MANY_PAIRS if query.dtype.itemsize > 2 else MANY_OF_HALF_TYPES
        return planes[0] * planes[1] * queries * keys < many
    target = host_target()
    if query.dtype is not torch.bfloat16 or not (target.has_avx512_bf16 and target.has_fast_bf16_pairs):
        return True
    tiles = takes_tiles(SIDE, int(width), int(value.shape[3]), "bfloat16", target)
    return not tiles or queries * keys < MANY_ON_TILES
