"""How heads, sequences and a mask come to a call of kernels: which of them stand in the place of which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ....structures.masks import Mask
from ..programs.modifier import Modifier, leaves_of
from .operators import CHANGED

FEW = 8
"""Queries of all heads that share keys, up to which they are computed together."""
HEADS, SEQUENCES, BOTH = "heads", "sequences", "both"
"""What a mask has one for each of, where it is not one for all."""


def attended(
    operands: tuple[Tensor, Tensor, Tensor],
    more: Sequence[Tensor | None],
    mask: Any,
    layout: str,
    attributes: tuple[float, Modifier | None, float],
    repeated: Callable[[Any, int], Any],
) -> tuple[Tensor, Tensor]:
    """Return the result (batch, heads, queries, Dv) and the logarithms (batch, heads, queries), -inf of a query without
    keys.

    operands: query, key and value of one number of sequences. more: a seed or None, and captured tensors. mask: or what
    stands for one where a program is traced, with its ``heads`` and ``padding``. attributes: scale, what scores become,
    probability of a dropout. repeated: from a mask and a number to the mask with its queries
    repeated that often.
    """
    query, key, value = operands
    scale, modifier, dropout = attributes
    batch, of_query, queries = query.shape[:3]
    heads, shape = key.shape[1], (batch, of_query, queries, value.shape[3])
    planes = of_query, batch, 1, of_query
    shared_by, of_sequences = of_query // heads, layout == SEQUENCES or mask.heads == 1
    if 1 < shared_by <= FEW and shared_by * queries <= FEW and of_sequences and _knows_no_query(modifier):
        # heads that share keys are queries of one: each key is read once
        query, mask, of_query = query.reshape(batch, heads, -1, query.shape[3]), repeated(mask, shared_by), heads
        planes = heads, batch, 1, heads
    if layout == HEADS:
        mask, operands = _in_groups(query, key, value, mask, heads)
        out, lse = CHANGED(mask, (*operands, *more), (scale, modifier, planes, dropout))
        return _shaped(out, lse, shape)
    key, value = (x.repeat_interleave(of_query // heads, 1) if of_query > heads else x for x in (key, value))
    if layout == BOTH:
        operands = tuple(x.reshape(1, batch * of_query, *x.shape[2:]) for x in (query, key, value))
        out, lse = CHANGED(mask, (*operands, *more), (scale, modifier, planes, dropout))
        return _shaped(out, lse, shape)
    # kernels have a mask for each head: sequences stand in their place
    operands = tuple(x.transpose(0, 1) for x in (query, key, value))
    out, lse = CHANGED(mask, (*operands, *more), (scale, modifier, (1, batch, batch, of_query), dropout))
    return _shaped(out.transpose(0, 1).contiguous(), lse.transpose(0, 1).contiguous(), shape)


def _knows_no_query(modifier: Modifier | None) -> bool:
    return modifier is None or not leaves_of(modifier.node) & {"head", "query"}


def _shaped(out: Tensor, lse: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return out.view(shape), torch.where(lse == torch.inf, -torch.inf, lse).view(shape[:3])


def _in_groups(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, heads: int
) -> tuple[Mask, tuple[Tensor, Tensor, Tensor]]:
    """Operands of one number of heads; keys that heads share are not copied where the mask is for all heads."""
    batch, of_query = query.shape[:2]
    shared_by = of_query // heads
    if shared_by == 1:
        return mask, (query, key, value)
    if mask.heads > 1:
        return mask, (query, *(x.repeat_interleave(shared_by, 1) for x in (key, value)))  # type: ignore[return-value]
    if mask.padding is not None:  # of each sequence once for each head of keys
        padding = mask.padding.expand(batch, -1).repeat_interleave(heads, 0)
        mask = Mask._make(mask.shape, 1, mask.block, mask._arrays[:4], padding, mask.facts)
    query = query.reshape(batch * heads, shared_by, *query.shape[2:])
    shared = (x.reshape(batch * heads, 1, *x.shape[2:]).expand(-1, shared_by, -1, -1) for x in (key, value))
    return mask, (query, *shared)  # type: ignore[return-value]
