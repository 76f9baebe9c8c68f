"""Which weights a seed keeps, as tensors: the function of `programs.random`."""

from __future__ import annotations

import torch
from torch import Tensor

from ...structures.masks import Mask
from .programs.random import WORDS, write_pair, write_word


def new_seed() -> Tensor:
    """(2,) int64, drawn from PyTorch's generator of the CPU, so that ``torch.manual_seed`` brings it again."""
    return torch.randint(0, WORDS, (2,))


def least_word(probability: float) -> int:
    """The least word that is kept."""
    return min(round(probability * WORDS), WORDS - 1)


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
    words: dict[str, Tensor] = {}
    write_word(words, "row", plane[:, :, None], query, seed, key=False)
    write_word(words, "column", None, key, seed, key=True)
    write_pair(words, "pair", words["row"][..., None], words["column"][:, None])
    kept = words["pair"] >= least_word(probability)
    return kept.unflatten(0, (batch, heads // mask.heads))
