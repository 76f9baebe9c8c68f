"""Attention composed of operators that have gradients of any order: what its gradient is differentiated as.

The numbers of all pairs are written out, block by block: memory grows with the blocks of the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ...runtime.type_names import accumulator_of
from ...structures.derived import fact
from ...structures.masks import Mask
from ..core.transforms import pulled_back
from .dropout import kept_blocks


@fact
def block_lines(mask: Mask) -> Tensor:
    """(num_blocks,) the row of blocks of each block, counted over heads."""
    return torch.repeat_interleave(mask.indptr.diff())


@fact
def allowed_pairs(mask: Mask) -> Tensor:
    """(num_blocks, block, block) bool, padding not counted."""
    every = mask.tiles.new_ones(1, mask.block, mask.block)
    return torch.cat([every, mask.tiles])[mask.tile.long() + 1].bool()


def know(mask: Mask) -> None:
    """Have the mask know what is kept of it: arrays of its own, no matter what is transformed then."""
    block_lines(mask)
    allowed_pairs(mask)


def _allowed(mask: Mask) -> Tensor:
    """(batch or 1, 1, num_blocks, block, block)."""
    found = allowed_pairs(mask)[None, None]
    if mask.padding is None:
        return found
    keys = torch.nn.functional.pad(mask.padding, (0, mask.block_columns * mask.block - mask.shape[1]))
    keys = keys.unflatten(1, (mask.block_columns, mask.block))[:, mask.indices.long()]
    return found & keys[:, None, :, None, :]


def _kept(mask: Mask, seed: Tensor, planes: tuple[int, ...], lines: Tensor, dropout: float) -> Tensor:
    return kept_blocks(mask, seed, planes, lines, mask.indices.long(), dropout)


def composed(
    dots: Any,
    sums: Any,
    mask: Mask,
    operands: Sequence[Tensor],
    seed: Tensor | None,
    scale: float,
    dropout: float,
    change: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention by the operators ``dots`` and ``sums``, and the logarithm of each query's sum of exponentials, infinity
    without keys: (batch, heads, queries). change: scores, (batch, heads / heads of the mask, blocks, block, block), to
    what they become.
    """
    q, k, v = operands
    allowed, lines = _allowed(mask), block_lines(mask)
    scores = dots(mask, (q, k)).to(accumulator_of(q.dtype)) * scale
    scores = torch.where(allowed, scores if change is None else change(scores), -torch.inf)
    count = mask.heads * mask.block_rows
    shape = (*scores.shape[:2], count, mask.block)
    with torch.no_grad(), forward_ad._set_fwd_grad_enabled(False):
        most = scores.new_full(shape, -torch.inf)
        own = scores.amax(4)
        place = lines.long()[:, None].expand_as(own)  # PyTorch 2.4 takes no others
        most = most.scatter_reduce(2, place, own, "amax").nan_to_num(neginf=0.0)
    weights = torch.where(allowed, torch.exp(scores - most[:, :, lines, :, None]), 0.0)
    total = weights.new_zeros(shape).index_add(2, lines, weights.sum(4))
    weights = weights / torch.where(total == 0, 1.0, total)[:, :, lines, :, None]
    lse = torch.where(total == 0, torch.inf, most + total.log())
    lse = lse.unflatten(2, (mask.heads, mask.block_rows)).flatten(3).flatten(1, 2)[..., : mask.shape[0]]
    if seed is not None:
        weights = weights * _kept(mask, seed, q.shape[:2], lines, dropout).to(weights.dtype) / (1.0 - dropout)
    return sums(mask, (weights.to(v.dtype), v), (False,)), lse


def composed_gradients(
    dots: Any,
    sums: Any,
    mask: Mask,
    operands: Sequence[Tensor],
    seed: Tensor | None,
    attributes: tuple[float, float],
    grad: Tensor,
) -> list[Tensor]:
    """The gradients of the operands, which can be differentiated again."""

    def function(operands: list[Tensor]) -> Tensor:
        return composed(dots, sums, mask, operands, seed, *attributes)[0]

    return pulled_back(function, operands, (True, True, True), grad)
