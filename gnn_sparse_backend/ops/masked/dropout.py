"""Which weights a seed keeps: the same function as `programs.random`, with PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from ...structures.masks import Mask
from .programs.random import ADDED, KEY, MIDDLE, PLANE, QUERY, WORDS


def new_seed() -> Tensor:
    """(2,) int64, drawn from PyTorch's generator of the CPU, so that ``torch.manual_seed`` brings it again."""
    return torch.randint(0, WORDS, (2,))


def least_word(probability: float) -> int:
    """The least word that is kept."""
    return min(round(probability * WORDS), WORDS - 1)


def _mixed(x: Tensor) -> Tensor:
    x = x % WORDS
    for added in ADDED:
        x = (x * x // MIDDLE + added) % WORDS
    return x


def kept_blocks(mask: Mask, seed: Tensor, planes: tuple[int, ...], lines: Tensor, probability: float) -> Tensor:
    """(batch, heads / heads of the mask, num_blocks, block, block) bool: whether the weight of each pair of a block is
    kept. planes: batch and heads.
    """
    batch, heads = planes
    device = mask.device
    groups, block, seed = batch * heads // mask.heads, torch.arange(mask.block, device=device), seed.to(device)
    plane = torch.arange(groups, device=device)[:, None] * mask.heads + (lines // mask.block_rows)[None]
    query = (lines % mask.block_rows)[:, None] * mask.block + block
    key = mask.indices.long()[:, None] * mask.block + block
    row = _mixed(_mixed(plane * PLANE + seed[0])[:, :, None] + query * QUERY)
    column = _mixed(key * KEY + seed[1])
    kept = _mixed(row[..., None] * column[:, None] // MIDDLE) >= least_word(probability)
    return kept.unflatten(0, (batch, heads // mask.heads))
