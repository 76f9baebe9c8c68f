"""Which calls of PyTorch's FlexAttention are ours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.attention import flex_attention as theirs

from ...ops.masked.flex.api import flex_attention
from ...ops.masked.flex.trace import Untraceable
from ...structures.checks import FLOATING
from ...structures.masks import Mask, Planes
from ..core.refusal import Refusal
from ..scopes import transformed

_PLAIN = (Tensor, Parameter)
ONE_BLOCK = 1 << 30
"""Sides of the one block of the mask that PyTorch has for none."""


def run(
    query,
    key,
    value,
    score_mod=None,
    block_mask=None,
    scale=None,
    enable_gqa=False,
    return_lse=False,
    kernel_options=None,
    **more,  # return_aux, from PyTorch 2.9 on
):
    """In the place of ``flex_attention``, of queries on a CPU."""
    if (found := refuse(query, key, value)) is not None:
        return found
    wanted = more.pop("return_aux", None)
    if more or not fits(query, key, value, block_mask, enable_gqa) or (return_lse and wanted is not None):
        return Refusal("the shapes do not fit")
    if getattr(wanted, "max_scores", False):
        return Refusal("the largest scores are asked for")
    logarithms = bool(return_lse or getattr(wanted, "lse", False))
    try:
        found = flex_attention(query, key, value, score_mod, block_mask, scale, enable_gqa, logarithms)
    except Untraceable as error:
        return Refusal("score_mod is no expression of scores that kernels have", str(error))
    if wanted is not None:
        out, lse = found if logarithms else (found, None)
        found = out, theirs.AuxOutput(lse=lse)
    return found, "flex_attention"


def refuse(*operands: Any) -> Refusal | None:
    """Why queries, keys and values are not those of kernels, if they are not."""
    if not all(type(x) in _PLAIN for x in operands):
        return Refusal("missing, subclass or traced tensor")
    if (found := transformed()) is not None:
        return found
    first = operands[0]
    if any(x.dtype is not first.dtype or x.device != first.device for x in operands):
        return Refusal("operands of two types or devices")
    if first.dtype not in FLOATING:
        return Refusal(f"dtype {first.dtype}")
    if any(x.layout is not torch.strided or x.is_nested for x in operands):
        return Refusal("sparse layout")
    return None


def fits(query: Tensor, key: Tensor, value: Tensor, block_mask: Any, enable_gqa: bool) -> bool:
    """Whether the shapes are those of a call that PyTorch computes."""
    if not query.dim() == key.dim() == value.dim() == 4 or key.shape[:3] != value.shape[:3]:
        return False
    batch, heads, queries, width = query.shape
    of_keys, by, keys = key.shape[:3]
    if key.shape[3] != width or not by or heads % by or (heads != by and not enable_gqa):
        return False
    if of_keys != batch and (of_keys != 1 or block_mask is None):
        return False
    if block_mask is None or isinstance(block_mask, (Mask, Planes)):
        own = block_mask.mask if isinstance(block_mask, Planes) else block_mask
        return own is None or own.shape == (queries, keys)
    if not isinstance(block_mask, theirs.BlockMask) or block_mask.kv_indices.device.type != "cpu":
        return False
    if set(block_mask.BLOCK_SIZE) == {ONE_BLOCK}:
        return True
    sizes = block_mask.kv_num_blocks.shape[:2]
    return tuple(block_mask.seq_lengths) == (queries, keys) and sizes[0] in (1, batch) and sizes[1] in (1, heads)
