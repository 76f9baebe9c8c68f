"""Attention and products on the blocks of a mask: the rows of all blocks are written out, and their pairs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...runtime.without_kernels import defines, defines_in_programs
from ...structures.masks import Mask
from ..core.transforms import pulled_back
from ..masked.composed import allowed_pairs, block_lines, composed, composed_gradients
from ..masked.flex.evaluated import evaluate
from ..masked.programs.modifier import Modifier
from .messages import wide_of


def _lines(mask: Mask, transposed: bool) -> tuple[Tensor, int]:
    """(blocks,) the row of blocks of each block, or the column, counted over heads; and how many a head has."""
    rows = block_lines(mask).long()
    if not transposed:
        return rows, mask.block_rows
    return rows // max(mask.block_rows, 1) * mask.block_columns + mask.indices.long(), mask.block_columns


def _of_blocks(x: Tensor, mask: Mask, transposed: bool) -> Tensor:
    """(batch, heads / heads of the mask, blocks, block, features) the rows of x, (batch, heads, rows, features), that
    stand at the queries of each block, or at its keys."""
    lines, count = _lines(mask, transposed)
    x = torch.nn.functional.pad(x.to(wide_of(x)), (0, 0, 0, count * mask.block - x.shape[2]))
    x = x.unflatten(2, (count, mask.block)).unflatten(1, (-1, mask.heads)).flatten(2, 3)
    return x.index_select(2, lines)


@defines("masked_sddmm")
def dots(mask: Mask, operands: Sequence[Tensor], attributes: Sequence[Any] = ()) -> Tensor:
    """Dot products at the pairs of the mask, and 0 elsewhere in its blocks."""
    a, b = operands
    found = _of_blocks(a, mask, False) @ _of_blocks(b, mask, True).transpose(3, 4)
    return torch.where(allowed_pairs(mask), found, 0.0).to(a.dtype)


@defines("masked_spmm")
def sums(mask: Mask, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """Sums over the pairs of each query, or of each key."""
    (values, b), (transposed,) = operands, attributes
    values = torch.where(allowed_pairs(mask), values.to(wide_of(b)), 0.0)
    parts = (values.transpose(3, 4) if transposed else values) @ _of_blocks(b, mask, not transposed)
    lines, count = _lines(mask, transposed)
    found = parts.new_zeros((*parts.shape[:2], mask.heads * count, *parts.shape[3:])).index_add(2, lines, parts)
    found = found.unflatten(2, (mask.heads, count)).flatten(3, 4).flatten(1, 2)
    return found[:, :, : mask.shape[1 if transposed else 0]].to(b.dtype)


@defines_in_programs("masked_attention")
def attention(mask: Mask, operands: Sequence[Any], attributes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """The attention, and the logarithm of each query's sum of exponentials."""
    q, k, v, seed = operands
    return composed(dots, sums, mask, (q, k, v), seed, *attributes)


@defines("masked_attention_backward")
def attention_backward(mask: Mask, operands: Sequence[Any], attributes: Sequence[Any]) -> list[Tensor]:
    """The gradients of queries, keys and values."""
    q, k, v, seed, _, _, grad = operands
    return composed_gradients(dots, sums, mask, (q, k, v), seed, tuple(attributes), grad)


@defines("changed_attention")
def changed(mask: Mask, operands: Sequence[Any], attributes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Attention of scores that are changed, and the logarithms."""
    q, k, v, seed, *captured = operands
    scale, modifier, planes, probability = attributes
    change = None if modifier is None else partial(_changed, mask, modifier, planes, q.shape[1], captured)
    return composed(dots, sums, mask, (q, k, v), seed, scale, probability, change)


@defines("changed_attention_backward")
def changed_backward(mask: Mask, operands: Sequence[Any], attributes: Sequence[Any]) -> tuple[Tensor, ...]:
    """The gradients that are needed of queries, keys and values, and of what scores are changed by."""
    grad, of_lse, _, _, *given = operands
    *others, needed = attributes
    found = pulled_back(lambda given: list(changed(mask, given, others)), given, needed, [grad, of_lse])
    return tuple(x for x in found if x is not None)


def _changed(
    mask: Mask, modifier: Modifier, planes: tuple[int, ...], heads: int, captured: Sequence[Tensor], scores: Tensor
) -> Tensor:
    """The scores of all blocks, changed."""
    batch_step, batches, head_step, all_heads = planes
    batch, groups = scores.shape[:2]
    line, within = block_lines(mask).long(), torch.arange(mask.block)
    own = torch.arange(groups)[:, None] * mask.heads + line // max(mask.block_rows, 1)
    at = (torch.arange(batch)[:, None, None] * heads + own)[..., None, None]
    places = {
        "batch": at // batch_step % batches,
        "head": at // head_step % all_heads,
        "query": ((line % max(mask.block_rows, 1))[:, None] * mask.block + within)[:, :, None],
        "key": (mask.indices.long()[:, None] * mask.block + within)[:, None, :],
    }
    wide = [x.to(scores.dtype) if x.is_floating_point() and x.dtype.itemsize < 4 else x for x in captured]
    return evaluate(modifier.node, places | {"score": scores}, wide)
