"""Attention with all scores written out: what PyTorch does not compute on a CPU, which has no gradient of
FlexAttention there, and kernels cannot, where a function of scores is no expression.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as theirs

from ...ops.masked.flex.functions import over_pairs
from ...runtime.type_names import accumulator_of
from ...structures.masks import Mask, Planes
from ...structures.masks.asking import Indexing
from .calls import ONE_BLOCK, fits


def completed(original: Callable) -> Callable:
    """PyTorch's function, with a gradient."""

    @functools.wraps(original)
    def flex_attention(
        query,
        key,
        value,
        score_mod=None,
        block_mask=None,
        scale=None,
        enable_gqa=False,
        return_lse=False,
        kernel_options=None,
        **more,
    ):
        given = query, key, value
        rest = score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options
        wanted = all(isinstance(x, Tensor) for x in given) and any(x.requires_grad for x in given)
        if not wanted and not isinstance(block_mask, (Mask, Planes)):
            return original(*given, *rest, **more)
        if not fits(*given, block_mask, enable_gqa):
            original(*(x.detach() for x in given), *rest, **more)  # PyTorch's own error
        out, lse, largest = dense_attention(*given, score_mod, block_mask, scale)
        if (wanted := more.get("return_aux")) is not None:
            return out, theirs.AuxOutput(lse if wanted.lse else None, largest if wanted.max_scores else None)
        return (out, lse) if return_lse else out

    return flex_attention


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None,
    block_mask: Any,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and of each query the logarithm of its sum of exponentials and its largest score."""
    shared, wide = query.shape[1] // key.shape[1], accumulator_of(query.dtype)
    q, k, v = query.to(wide), *(x.to(wide).repeat_interleave(shared, 1) for x in (key, value))
    scores = q @ k.transpose(2, 3) * (1 / math.sqrt(query.shape[3]) if scale is None else scale)
    places = [torch.arange(size) for size in scores.shape]
    if score_mod is not None:
        with Indexing():
            scores = over_pairs(score_mod, 1)(scores, *places).to(wide)
    allowed = _allowed(block_mask, places)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    some = (scores > -torch.inf).any(3, keepdim=True)
    there = scores.where(some, 0.0)
    out = (there.softmax(3).where(some, 0.0) @ v).to(query.dtype)
    lse, largest = (x.where(some[..., 0], -torch.inf) for x in (there.logsumexp(3), there.amax(3)))
    return out, lse, largest


def _allowed(block_mask: Any, places: list[Tensor]) -> Tensor | None:
    """(batch or 1, heads or 1, queries, keys) bool, or None for all."""
    if isinstance(block_mask, Mask):
        block_mask = Planes(block_mask, 1, block_mask.heads)
    if isinstance(block_mask, Planes):
        return block_mask.dense()
    if block_mask is None or set(block_mask.BLOCK_SIZE) == {ONE_BLOCK}:
        return None
    with torch.no_grad(), Indexing():
        found = over_pairs(block_mask.mask_mod, 0)(*places)
    tall, wide = block_mask.BLOCK_SIZE
    kept = block_mask.to_dense().bool()
    kept = kept.repeat_interleave(tall, 2)[:, :, : places[2].numel()]
    return found & kept.repeat_interleave(wide, 3)[..., : places[3].numel()]
