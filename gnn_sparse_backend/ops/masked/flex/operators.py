"""Attention with changed scores as an autograd operator: result and logarithms, and their gradients.

Gradients of queries, keys and values come of one pass over the blocks, as those of ``gsb.sparse_attention``. That of a
tensor which the scores are changed by has the numbers of all pairs of the blocks written out, part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ....runtime.type_names import accumulator_of
from ....structures.masks import Mask
from ...core.operator import Operator
from ..change import Change
from ..composed import allowed_pairs, block_lines
from ..dropout import Dropout, kept_blocks
from ..executables_cpu import attend, attend_backward, delta_of
from ..programs.modifier import Modifier
from .evaluated import evaluate

PAIRS = 1 << 22
"""Pairs of all heads and sequences whose numbers are written out at a time."""


def _run(mask: Mask, operands: Sequence[Any], attributes: tuple) -> tuple[Tensor, Tensor]:
    (q, k, v, seed, *captured), (scale, modifier, planes, probability) = operands, attributes
    return attend(mask, q, k, v, scale, _dropout(seed, probability), _change(modifier, captured, planes))


def _dropout(seed: Tensor | None, probability: float) -> Dropout | None:
    return None if seed is None else Dropout(probability, seed)


def _change(modifier: Modifier | None, captured: Sequence[Tensor], planes: tuple) -> Change | None:
    return None if modifier is None else Change(modifier, tuple(captured), planes)


def _record(mask: Mask, operands: Sequence[Tensor], attributes: tuple, needed: Sequence[bool]) -> tuple:
    out, lse = _run(mask, operands, attributes)
    return (out, lse), (*operands, out, lse), None


def _gradients(
    mask: Mask, attributes: tuple, saved: Sequence[Tensor], memo: Any, needed: Sequence[bool], grad: Tensor, of_lse: Any
) -> list[Tensor | None]:
    return list(_BACKWARD(mask, (*saved, grad, of_lse), (*attributes, tuple(needed))))


def _run_backward(mask: Mask, operands: Sequence[Any], attributes: tuple) -> tuple[Tensor | None, ...]:
    (q, k, v, seed, *captured, out, lse, grad, of_lse), (scale, modifier, planes, probability, needed) = (
        operands,
        attributes,
    )
    delta = delta_of(out, grad)
    if of_lse is not None:  # of a query without keys, whose logarithm is none
        delta = delta - torch.where(lse.isinf(), 0.0, of_lse.to(delta.dtype))
    change, dropout = _change(modifier, captured, planes), _dropout(seed, probability)
    first: Sequence[Tensor | None] = (None, None, None)
    if any(needed[:3]):
        first = attend_backward(mask, (q, k, v), out, lse, grad, scale, dropout, change, delta.contiguous())
    wanted = [x for x, need in zip(captured, needed[4:]) if need]
    if not wanted or change is None:
        return (*first, None, *(None for _ in captured))
    sums = iter(_gradients_of_captured(mask, (q, k, v), lse, grad, delta, scale, dropout, change, needed[4:]))
    return (*first, None, *(next(sums) if need else None for need in needed[4:]))


def _gradients_of_captured(
    mask: Mask,
    operands: tuple[Tensor, Tensor, Tensor],
    lse: Tensor,
    grad: Tensor,
    delta: Tensor,
    scale: float,
    dropout: Dropout | None,
    change: Change,
    needed: Sequence[bool],
) -> list[Tensor]:
    """The gradients of the tensors that are needed, summed over parts of the blocks."""
    q, k, v = operands
    batch, heads, queries = q.shape[:3]
    planes, side, acc = batch * heads, mask.block, accumulator_of(q.dtype)
    lines, columns, allowed = block_lines(mask).long(), mask.indices.long(), allowed_pairs(mask)
    each = max(1, PAIRS // max(batch * heads // mask.heads * side * side, 1))
    batch_step, batches, head_step, all_heads = change.planes
    within = torch.arange(side)
    plane = torch.arange(planes).view(-1, mask.heads)
    flat = [x.flatten(0, 1).to(acc) for x in (q, k, v, grad)]
    wide = [
        x.detach().to(acc) if x.dtype.itemsize < 4 and x.is_floating_point() else x.detach() for x in change.tensors
    ]
    leaves = [x.clone().requires_grad_() if need else x for x, need in zip(wide, needed)]
    wanted = [x for x, need in zip(leaves, needed) if need]
    totals = [torch.zeros_like(x) for x in wanted]
    for part in torch.arange(mask.num_blocks).split(each):
        line = lines[part]
        at = plane[:, line // mask.block_rows]  # (groups, blocks of the part)
        query = (line % mask.block_rows)[:, None] * side + within
        key = columns[part][:, None] * side + within
        own, other = query.clamp(max=queries - 1), key.clamp(max=k.shape[2] - 1)
        rows, keys, values, cotangents = (x[at[..., None], index] for x, index in zip(flat, (own, other, other, own)))
        score = rows @ keys.transpose(2, 3) * scale
        places = {
            "batch": (at // batch_step % batches)[..., None, None],
            "head": (at // head_step % all_heads)[..., None, None],
            "query": query[None, :, :, None],
            "key": key[None, :, None, :],
        }
        with torch.enable_grad():
            changed = evaluate(change.modifier.node, places | {"score": score}, leaves)
        logarithm, common = (x.flatten(0, 1)[at[..., None], own][..., None] for x in (lse, delta))
        there = allowed[part]
        if mask.padding is not None:
            there = there & mask.padding.expand(batch, -1)[(at // heads)[..., None], other][:, :, None, :]
        weight = torch.where(there, (changed.detach() - logarithm).exp(), 0.0)
        arriving = cotangents @ values.transpose(2, 3)
        if dropout is not None:
            kept = kept_blocks(mask, dropout.seed, (batch, heads), line, columns[part], dropout.probability)
            arriving = arriving * kept.flatten(0, 1) / (1.0 - dropout.probability)
        slope = torch.where(there, weight * (arriving - common), 0.0)
        if changed.requires_grad:
            found = torch.autograd.grad(changed, wanted, slope.expand_as(changed), allow_unused=True)
            for total, one in zip(totals, found):
                if one is not None:
                    total += one
    tensors = [x for x, need in zip(change.tensors, needed) if need]
    return [total.to(x.dtype) for total, x in zip(totals, tensors)]


def _no_second(*given: Any) -> list[Tensor | None]:
    raise NotImplementedError(
        "flex_attention has no second derivative; gsb.sparse_attention, which changes no scores, has those of any order"
    )


CHANGED = Operator("changed_attention", _run, _gradients, _record)
"""Operands: q, k, v, the seed of a dropout or None, captured tensors. Attributes: (scale, what scores become or None,
numbers for `PLANES`, probability of a dropout). Results: out, lse.
"""
_BACKWARD = Operator(
    "changed_attention_backward",
    _run_backward,
    _no_second,
    lambda mask, operands, attributes, needed: (_run_backward(mask, operands, attributes), (), None),
)
