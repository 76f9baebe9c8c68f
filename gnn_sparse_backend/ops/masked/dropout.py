"""What a call of attention scales and drops: what kernels are given, and which weights a seed keeps, as tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...runtime.type_names import accumulator_of
from ...structures.masks import Mask
from .programs.random import WORDS, write_pair, write_word


class Dropout(NamedTuple):
    """probability: of a weight to be dropped. seed: (2,) int64, words of 32 bits."""

    probability: float
    seed: Tensor


def scalars(like: Tensor, scale: float, dropout: Dropout | None) -> dict[str, Tensor]:
    """The numbers of a call by the names of the parameters."""
    wide, device = accumulator_of(like.dtype), like.device
    found = {"Scale": torch.full((1,), scale, dtype=wide, device=device)}
    if dropout is not None:
        factor = 1.0 / (1.0 - dropout.probability)
        found["Seed"] = dropout.seed.to(device, non_blocking=True)
        found["Least"] = torch.full((1,), least_word(dropout.probability), dtype=torch.int64, device=device)
        found["Factor"] = torch.full((1,), factor, dtype=wide, device=device)
    return found


def new_seed() -> Tensor:
    """(2,) int64, drawn from PyTorch's generator of the CPU, so that ``torch.manual_seed`` brings it again."""
    return torch.randint(0, WORDS, (2,))


def least_word(probability: float) -> int:
    """The least word that is kept."""
    return min(round(probability * WORDS), WORDS - 1)


def kept_blocks(
    mask: Mask, seed: Tensor, planes: tuple[int, ...], lines: Tensor, columns: Tensor, probability: float
) -> Tensor:
    """(batch, heads / heads of the mask, blocks, block, block) bool: whether the weight of each pair of a block is
    kept, by the function of `programs.random`. planes: batch and heads. lines, columns: of the blocks that are asked.
    """
    batch, heads = planes
    device = mask.device
    groups, block, seed = batch * heads // mask.heads, torch.arange(mask.block, device=device), seed.to(device)
    plane = torch.arange(groups, device=device)[:, None] * mask.heads + (lines // mask.block_rows)[None]
    query = (lines % mask.block_rows)[:, None] * mask.block + block
    key = columns[:, None] * mask.block + block
    words: dict[str, Tensor] = {}
    write_word(words, "row", plane[:, :, None], query, seed, key=False)
    write_word(words, "column", None, key, seed, key=True)
    write_pair(words, "pair", words["row"][..., None], words["column"][:, None])
    kept = words["pair"] >= least_word(probability)
    return kept.unflatten(0, (batch, heads // mask.heads))
