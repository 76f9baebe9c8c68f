"""Attention with changed scores as operators: result and logarithms, and their gradients.

    gsb::changed_attention            the result, and the logarithm of each query's sum of exponentials
    gsb::changed_attention_backward   the gradients of those of its tensors that want one

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
from ...core.operands import check_fit
from ...core.operator import Operator
from ...core.transforms import recording
from ..change import Change
from ..composed import allowed_pairs, block_lines
from ..dropout import Dropout, kept_blocks
from ..executables_cpu import attend, attend_backward, delta_of
from ..operators import fits_mask
from ..programs.modifier import Modifier
from ..traced import MASK
from .evaluated import evaluate
from .written import read, written

PAIRS = 1 << 22
"""Pairs of all heads and sequences whose numbers are written out at a time."""


def _run(mask: Mask, operands: Sequence[Any], attributes: tuple) -> tuple[Tensor, Tensor]:
    (q, k, v, seed, *captured), (scale, modifier, planes, probability) = operands, attributes
    return attend(mask, q, k, v, scale, _dropout(seed, probability), _change(modifier, captured, planes))


def _dropout(seed: Tensor | None, probability: float) -> Dropout | None:
    return None if seed is None else Dropout(probability, seed)


def _change(modifier: Modifier | None, captured: Sequence[Tensor], planes: tuple) -> Change | None:
    """What scores are changed by. captured: what the modifier reads, and behind that what a mask is made of."""
    return None if modifier is None else Change(modifier, tuple(captured[: len(modifier.captured)]), planes)


def _gradients(
    structure: Any,
    attributes: tuple,
    saved: Sequence[Tensor],
    memo: Any,
    needed: Sequence[bool],
    grad: Tensor,
    of_lse: Tensor,
) -> list[Tensor | None]:
    (*operands, out, lse), wanted = saved, tuple(bool(need) for need in needed)
    found = iter(BACKWARD(structure, (grad, of_lse, out, lse, *operands), (*attributes, wanted)))
    return [next(found) if need else None for need in wanted]


def _run_backward(mask: Mask, operands: Sequence[Any], attributes: tuple) -> tuple[Tensor, ...]:
    """The gradients of those of (q, k, v, seed, captured tensors) that are needed."""
    (grad, of_lse, out, lse, q, k, v, seed, *captured), (scale, modifier, planes, probability, needed) = (
        operands,
        attributes,
    )
    # a query without keys has no logarithm
    delta = delta_of(out, grad) - torch.where(lse.isinf(), 0.0, of_lse.to(lse.dtype))
    change, dropout = _change(modifier, captured, planes), _dropout(seed, probability)
    first: Sequence[Tensor | None] = (None, None, None)
    if any(needed[:3]):
        first = attend_backward(mask, (q, k, v), out, lse, grad, scale, dropout, change, delta.contiguous())
    found = [x for x, need in zip(first, needed) if need and x is not None]
    if change is not None and any(needed[4:]):
        found += _gradients_of_captured(mask, (q, k, v), lse, grad, delta, scale, dropout, change, needed[4:])
    return tuple(found)


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
        with torch.enable_grad(), recording():
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
            with recording():
                found = torch.autograd.grad(changed, wanted, slope.expand_as(changed), allow_unused=True)
            for total, one in zip(totals, found):
                if one is not None:
                    total += one
    tensors = [x for x, need in zip(change.tensors, needed) if need]
    return [total.to(x.dtype).contiguous() for total, x in zip(totals, tensors)]


def _no_second(*given: Any) -> list[Tensor | None]:
    raise NotImplementedError(
        "flex_attention has no second derivative; gsb.sparse_attention, which changes no scores, has those of any order"
    )


_NO_TEXT = ""
"""Scores that stay as they are."""


def _encode(attributes: tuple, transposed: bool) -> tuple:
    scale, modifier, planes, *more = attributes
    text = _NO_TEXT if modifier is None else written(modifier)
    return scale, text, list(planes), *(list(each) if isinstance(each, tuple) else each for each in more)


def _decode(*values: Any) -> tuple[tuple, bool]:
    scale, text, planes, *more = values
    more = [tuple(each) if isinstance(each, (list, tuple)) else each for each in more]
    return (scale, read(text) if text else None, tuple(planes), *more), False


def _with_seed(at: int) -> dict[str, Any]:
    """How a seed that is not there is left out of the list of tensors, where it would be the one with a number."""

    def given(attributes: tuple, tensors: Sequence[Any]) -> list[Any]:
        return [*tensors] if attributes[3] else [*tensors[:at], None, *tensors[at:]]

    def sent(attributes: tuple, operands: Sequence[Any]) -> list[Any]:
        return [*operands] if attributes[3] else [*operands[:at], *operands[at + 1 :]]

    return {"given": given, "sent": sent, "encode": _encode, "decode": _decode}


def _check(mask: Mask, operands: Sequence[Any], attributes: tuple) -> Sequence[Any]:
    (q, k, v, _, *captured), modifier = operands, attributes[1]
    fits = fits_mask(mask, q, k, v) and q.shape[3] == k.shape[3] and q.is_cpu
    fits = fits and (modifier is None or len(captured) >= len(modifier.captured))
    check_fit("changed_attention", mask, fits, *operands)
    return operands


def _check_backward(mask: Mask, operands: Sequence[Any], attributes: tuple) -> Sequence[Any]:
    grad, of_lse, out, lse, *rest = operands
    _check(mask, rest, attributes)
    q, v = rest[0], rest[2]
    fits = out.shape == grad.shape == (*q.shape[:3], v.shape[3]) and lse.shape == of_lse.shape == q.shape[:3]
    check_fit("changed_attention_backward", mask, fits, *operands)
    return operands


def _like(arguments: tuple, operands: Sequence[Any], attributes: tuple, transposed: bool) -> tuple[Tensor, Tensor]:
    q, _, v, *_ = operands
    return q.new_empty((*q.shape[:3], v.shape[3])), q.new_empty(q.shape[:3], dtype=accumulator_of(q.dtype))


def _like_backward(arguments: tuple, operands: Sequence[Any], attributes: tuple, transposed: bool) -> list[Tensor]:
    return [x.new_empty(x.shape) for x, need in zip(operands[4:], attributes[4]) if need]


CHANGED = Operator(
    "changed_attention",
    _run,
    _gradients,
    structure=MASK,
    operands="Tensor[] operands",
    attributes="float scale, str modifier, SymInt[] planes, float dropout",
    results="(Tensor, Tensor)",
    like=_like,
    check=_check,
    saved=lambda attributes, operands, results: ((*operands, *results), None),
    **_with_seed(3),
)
"""Operands: q, k, v, the seed of a dropout or None, captured tensors, what a mask is made of. Attributes: (scale, what
scores become or None, numbers for `PLANES`, probability of a dropout). Results: out, lse.
"""
BACKWARD = Operator(
    "changed_attention_backward",
    _run_backward,
    _no_second,
    structure=MASK,
    operands="Tensor[] operands",
    attributes="float scale, str modifier, SymInt[] planes, float dropout, bool[] needed",
    results="Tensor[]",
    like=_like_backward,
    check=_check_backward,
    **_with_seed(7),
)
