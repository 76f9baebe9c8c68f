"""``gsb.flex_attention``: PyTorch's FlexAttention on a CPU, with its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ....compiler.cache.bounded import KernelCache, kept, shared
from ....runtime.type_names import accumulator_of
from ....structures.masks import Mask, full
from ...core.operands import check_dense, is_plain, one_type
from ..arrays import repeated
from ..dropout import new_seed
from ..programs.modifier import Modifier, leaves_of
from .block_masks import Planes, mask_of
from .operators import CHANGED
from .recognition import Unknown, contents_of
from .trace import Traced, traced

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
FEW = 8
"""Queries of all heads that share keys, up to which they are computed together."""
MOST_FUNCTIONS = 256
"""Functions that are known without tracing them again."""
_traced: KernelCache[Any, Traced] = shared("functions of scores", MOST_FUNCTIONS)


@overload
def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: Literal[False] = False,
    *,
    dropout: float = 0.0,
) -> Tensor: ...
@overload
def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    return_lse: Literal[True],
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]: ...
def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    *,
    dropout: float = 0.0,
) -> Tensor | tuple[Tensor, Tensor]:
    """``torch.nn.attention.flex_attention.flex_attention`` on a CPU, which has a gradient here.

    ``out[q] = sum over the keys k of softmax(score_mod(scale * <query[q], key[k]>, b, h, q, k)) * value[k]``, for each
    head h of each sequence b, in one pass over the blocks of the mask, forward and backward: memory grows with the
    lengths alone (FlexAttention: Dong et al., 2024).

        slopes = torch.exp2(-torch.arange(1, 9))
        out = gsb.flex_attention(q, k, v, lambda score, b, h, q, k: score + slopes[h] * (k - q), block_mask)

    Args:
        query: (batch, heads, queries, D) in float32, float64, bfloat16 or float16.
        key: (batch, heads, keys, D), of the type of ``query``; with ``enable_gqa`` the heads of ``query`` may be a
            multiple of those of ``key`` and ``value``, which are shared by neighbouring ones. One sequence of keys may
            stand for all.
        value: (batch, heads, keys, Dv).
        score_mod: ``(score, batch, head, query, key) -> score``, a function of tensors without dimensions: arithmetic,
            comparisons, ``torch.where``, minimum, maximum, clamp, exp, log, sqrt, tanh, sigmoid, abs, powers, and
            elements of tensors from around it, which may want gradients.
        block_mask: of PyTorch (``create_block_mask``), of any size of blocks, or a mask of ``gsb.masks``; None for all
            pairs.
        scale: None for ``1 / sqrt(D)``.
        return_lse: whether the logarithm of each query's sum of exponentials is wanted as well.
        dropout: probability of a weight to be dropped, as of ``gsb.sparse_attention``.

    Returns:
        (batch, heads, queries, Dv) in the type of ``query``; with ``return_lse`` also (batch, heads, queries) in the
        accumulation type, -inf of a query without keys, whose result is 0. Scores are computed in at least float32.
        Gradients flow to query, key, value, and to tensors that ``score_mod`` reads, those of the logarithms too; they
        have no derivative themselves. The gradient of such a tensor writes out the numbers of all pairs, part by part.

    Raises:
        TypeError: an operand is no dense floating tensor, types differ, or ``score_mod`` has a step that is no
            expression (`Untraceable`), which is quoted.
        ValueError: shapes do not fit, or an operand is not on a CPU.
    """
    given = {"query": query, "key": key, "value": value}
    for name, x in given.items():
        check_dense("flex_attention", name, x)
        if x.dim() != 4:
            raise ValueError(
                f"flex_attention: {name} must have shape (batch, heads, length, width), got {tuple(x.shape)}"
            )
        if not x.is_cpu:
            raise ValueError(
                f"flex_attention: {name} is on {x.device}, and kernels are for a CPU; take PyTorch's there"
            )
    if not is_plain(query, key, value):
        raise TypeError("flex_attention: a program that is traced or transformed cannot have it; call PyTorch's there")
    query, key, value = one_type("flex_attention", given)
    heads = _check_shapes(query, key, value, enable_gqa)
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0.0 <= dropout < 1.0:
        raise ValueError(f"flex_attention: dropout must be a probability in [0, 1), got {dropout!r}")
    scale = 1.0 / math.sqrt(max(query.shape[3], 1)) if scale is None else float(scale)
    mask, layout = _mask(block_mask, query, key)
    key, value = (x.expand(query.shape[0], -1, -1, -1) for x in (key, value))
    changed = score_mod is not None or dropout or return_lse
    if not changed and not _few(query, heads) and _is_everything(mask) and query.dtype is not torch.float16:
        return scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=enable_gqa)
    if not query.shape[2] or not key.shape[2] or not query.numel():
        return _of_nothing(query, key, value, return_lse)
    modifier, captured = (None, ()) if score_mod is None else _known(score_mod, accumulator_of(query.dtype))
    more = (new_seed() if dropout else None), *captured
    batch, of_query, queries = query.shape[:3]
    shape, planes = (batch, of_query, queries, value.shape[3]), (of_query, batch, 1, of_query)
    shared_by, of_sequences = of_query // heads, layout == SEQUENCES or mask.heads == 1
    if 1 < shared_by <= FEW // queries and of_sequences and _knows_no_query(modifier):
        # heads that share keys are queries of one: each key is read once
        query, mask, of_query = query.reshape(batch, heads, -1, query.shape[3]), repeated(mask, shared_by), heads
        planes = heads, batch, 1, heads
    if layout == HEADS:
        mask, operands = _in_groups(query, key, value, mask, heads)
        return _results(*CHANGED(mask, (*operands, *more), (scale, modifier, planes, dropout)), shape, return_lse)
    key, value = (x.repeat_interleave(of_query // heads, 1) if of_query > heads else x for x in (key, value))
    if layout == BOTH:
        operands = tuple(x.reshape(1, batch * of_query, *x.shape[2:]) for x in (query, key, value))
        return _results(*CHANGED(mask, (*operands, *more), (scale, modifier, planes, dropout)), shape, return_lse)
    # kernels have a mask for each head: sequences stand in their place
    operands = tuple(x.transpose(0, 1) for x in (query, key, value))
    out, lse = CHANGED(mask, (*operands, *more), (scale, modifier, (1, batch, batch, of_query), dropout))
    return _results(out.transpose(0, 1).contiguous(), lse.transpose(0, 1).contiguous(), shape, return_lse)


def _few(query: Tensor, heads: int) -> bool:
    """Whether queries are so few that kernels read their keys faster than PyTorch does."""
    return query.shape[2] <= FEW and (query.shape[1] > heads or query.dtype is torch.bfloat16)


def _knows_no_query(modifier: Modifier | None) -> bool:
    return modifier is None or not leaves_of(modifier.node) & {"head", "query"}


def _is_everything(mask: Mask) -> bool:
    return mask.padding is None and mask.num_pairs == mask.heads * mask.shape[0] * mask.shape[1]


_everything = kept(lambda queries, keys: full((queries, keys)))


def _of_nothing(query: Tensor, key: Tensor, value: Tensor, return_lse: bool) -> Tensor | tuple[Tensor, Tensor]:
    """What is attended where there are no keys, or none that attends: zeros, whose gradients are."""
    nothing = sum(x[..., :0].sum() for x in (query, key, value))
    out = query.new_zeros(*query.shape[:3], value.shape[3]) + nothing
    lse = query.new_full(query.shape[:3], -torch.inf, dtype=accumulator_of(query.dtype))
    return (out, lse) if return_lse else out


def _results(out: Tensor, lse: Tensor, shape: tuple[int, ...], return_lse: bool) -> Tensor | tuple[Tensor, Tensor]:
    out = out.view(shape)
    return (out, torch.where(lse == torch.inf, -torch.inf, lse).view(shape[:3])) if return_lse else out


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> int:
    """Heads of keys and values."""
    batch = query.shape[0]
    if key.shape[:3] != value.shape[:3] or key.shape[0] not in (1, batch) or key.shape[3] != query.shape[3]:
        raise ValueError(
            "flex_attention: query (batch, heads, queries, D), key (batch, heads, keys, D) and value (batch, heads, "
            f"keys, Dv) do not fit: {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        )
    heads, shared_by = key.shape[1], query.shape[1]
    if heads != shared_by and not enable_gqa:
        raise ValueError(
            f"flex_attention: query has {shared_by} heads and key {heads}; give enable_gqa=True where heads share keys"
        )
    if heads == 0 or shared_by % heads:
        raise ValueError(
            f"flex_attention: the {shared_by} heads of query must be a multiple of the {heads} heads of key"
        )
    return heads


_ONE_BLOCK = 1 << 30, 1 << 30
"""The sides of the one block of PyTorch's mask that stands for none."""
HEADS, SEQUENCES, BOTH = "heads", "sequences", "both"
"""What a mask has one for each of, where it is not one for all."""


def _mask(block_mask: Any, query: Tensor, key: Tensor) -> tuple[Mask, str]:
    """(the mask, what it has one for each of)."""
    (batch, heads, queries), keys = query.shape[:3], key.shape[2]
    if block_mask is None or getattr(block_mask, "BLOCK_SIZE", None) == _ONE_BLOCK:
        return _everything(queries, keys), HEADS
    if isinstance(block_mask, Mask):
        found, of = block_mask, (1, block_mask.heads)
    elif isinstance(block_mask, Planes):
        found, of = block_mask.mask, (block_mask.batch, block_mask.heads)
    elif hasattr(block_mask, "mask_mod"):
        found, of = mask_of(block_mask), tuple(block_mask.kv_num_blocks.shape[:2])
    else:
        raise TypeError(
            "flex_attention: block_mask must be PyTorch's BlockMask or a gsb.masks.Mask, got "
            f"{type(block_mask).__name__}"
        )
    if found.shape != (queries, keys) or of[0] not in (1, batch) or of[1] not in (1, heads):
        raise ValueError(
            f"flex_attention: a mask of {of[0]} sequences, {of[1]} heads and {found.shape} queries and keys does not "
            f"fit query {tuple(query.shape)} and key {tuple(key.shape)}"
        )
    if found.padding is not None and found.padding.shape[0] not in (1, batch):
        raise ValueError(f"flex_attention: the padding of {found!r} is not for {batch} sequences")
    return found, HEADS if of[0] == 1 else SEQUENCES if of[1] == 1 else BOTH


def _known(score_mod: ScoreMod | Traced, dtype: torch.dtype) -> Traced:
    if isinstance(score_mod, Traced):
        return score_mod
    try:
        name = contents_of(score_mod), dtype
    except Unknown:
        return traced(score_mod, dtype)
    found = _traced.get(name)
    return _traced.keep(name, traced(score_mod, dtype)) if found is None else found


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
