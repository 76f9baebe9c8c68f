"""The attention of a layer of a model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...ops.masked.flex.api import flex_attention
from ...ops.masked.flex.trace import Traced
from ...ops.masked.programs.modifier import BATCH, HEAD, KEY, QUERY, SCORE, Modifier, Node, const
from ...runtime.type_names import type_name
from ...structures.masks import Planes, causal
from ..core.refusal import PASS
from ..flex_attention.calls import refuse
from .masks import of_tensor


def run(
    module,
    query,
    key,
    value,
    attention_mask=None,
    dropout=0.0,
    scaling=None,
    is_causal=None,
    softcap=None,
    position_bias=None,
    s_aux=None,
    **more,
):
    """In the place of ``sdpa_attention_forward``. softcap, position_bias, s_aux: as models have them; the last is a
    logit for each head, of a key without a value.
    """
    if not query.is_cpu:
        return PASS
    if (found := refuse(query, key, value)) is not None:
        return found
    mask, added = attention_mask, position_bias
    if isinstance(mask, Tensor):
        mask, bias = of_tensor(mask)
        added = bias if added is None else added if bias is None else added + bias
    elif mask is None and query.shape[2] > 1 and (module.is_causal if is_causal is None else is_causal):
        mask = causal((query.shape[2], key.shape[2]))
    changed = _changed(softcap, added)
    given = (query, key, value, changed, mask, scaling)
    out = flex_attention(*given, enable_gqa=True, return_lse=s_aux is not None, dropout=dropout)
    if s_aux is not None:
        out, lse = out
        out = out * (lse - s_aux[:, None]).sigmoid().unsqueeze(3).to(out.dtype)
    return (out.transpose(1, 2).contiguous(), None), "attention"


def _changed(softcap: float | None, added: Tensor | None) -> Traced | None:
    """What scores become: capped first, then added to."""
    node, tensors = SCORE, ()
    if softcap is not None:
        node = Node("mul", (Node("tanh", (Node("mul", (node, const(1.0 / softcap))),)), const(float(softcap))))
    if added is not None:
        node = Node("add", (node, Node("load", (0, BATCH, HEAD, QUERY, KEY))))
        tensors = (added,)
    if node is SCORE:
        return None
    return Traced(Modifier(node, tuple((type_name(x.dtype), x.dim()) for x in tensors)), tensors)


def by_pytorch(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function of PyTorch's operators, given a mask that it takes in the place of ours."""

    @functools.wraps(original)
    def attend(module, query, key, value, attention_mask=None, **more):
        if isinstance(attention_mask, Planes):
            attention_mask = attention_mask.dense()
        return original(module, query, key, value, attention_mask, **more)

    return attend
