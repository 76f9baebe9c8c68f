"""``gsb.flex_attention``: PyTorch's FlexAttention on a CPU, with its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ....compiler.cache.bounded import KernelCache, shared
from ....runtime.type_names import accumulator_of
from ....structures.masks import Mask, Planes
from ...core.operands import check_dense, is_plain, one_type
from ..arrays import repeated
from ..dropout import new_seed
from ..programs.modifier import SCORE
from .arrangement import BOTH, HEADS, SEQUENCES, attended
from .block_masks import mask_of
from .dense import pytorch_is_faster
from .functions import everything
from .recognition import Unknown, contents_of
from .trace import Traced, traced

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
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
            elements of tensors from around it, which may want gradients; also rows of up to 16 of these, summed up.
        block_mask: of PyTorch (``create_block_mask``), of any size of blocks, or a mask or `Planes` of ``gsb.masks``;
            None for all pairs.
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
        raise TypeError(
            "flex_attention: a program that is traced or transformed cannot have it; call PyTorch's there, which is "
            'this one in programs of torch.compile under gsb.enable("flex_attention")'
        )
    query, key, value = one_type("flex_attention", given)
    _check_shapes(query, key, value, enable_gqa)
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0.0 <= dropout < 1.0:
        raise ValueError(f"flex_attention: dropout must be a probability in [0, 1), got {dropout!r}")
    scale = 1.0 / math.sqrt(max(query.shape[3], 1)) if scale is None else float(scale)
    mask, layout = _mask(block_mask, query, key)
    key, value = (x.expand(query.shape[0], -1, -1, -1) for x in (key, value))
    changed = score_mod is not None or dropout or return_lse
    if not changed and pytorch_is_faster(query, key, value) and _is_everything(mask):
        return scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=enable_gqa)
    if not query.shape[2] or not key.shape[2] or not query.numel():
        return _of_nothing(query, key, value, return_lse)
    modifier, captured = (None, ()) if score_mod is None else _known(score_mod, accumulator_of(query.dtype))
    modifier = None if modifier is not None and modifier.node is SCORE else modifier
    more = (new_seed() if dropout else None), *captured
    out, lse = attended((query, key, value), more, mask, layout, (scale, modifier, dropout), repeated)
    return (out, lse) if return_lse else out


def _is_everything(mask: Mask) -> bool:
    return mask.padding is None and mask.num_pairs == mask.heads * mask.shape[0] * mask.shape[1]


def _of_nothing(query: Tensor, key: Tensor, value: Tensor, return_lse: bool) -> Tensor | tuple[Tensor, Tensor]:
    """What is attended where there are no keys, or none that attends: zeros, whose gradients are."""
    nothing = sum(x[..., :0].sum() for x in (query, key, value))
    out = query.new_zeros(*query.shape[:3], value.shape[3]) + nothing
    lse = query.new_full(query.shape[:3], -torch.inf, dtype=accumulator_of(query.dtype))
    return (out, lse) if return_lse else out


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
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


_ONE_BLOCK = 1 << 30, 1 << 30
"""The sides of the one block of PyTorch's mask that stands for none."""


def _mask(block_mask: Any, query: Tensor, key: Tensor) -> tuple[Mask, str]:
    """(the mask, what it has one for each of)."""
    (batch, heads, queries), keys = query.shape[:3], key.shape[2]
    if block_mask is None or getattr(block_mask, "BLOCK_SIZE", None) == _ONE_BLOCK:
        return everything(queries, keys), HEADS
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
