"""Masks of models: described by functions and padding, or given as dense tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary
from transformers.masking_utils import causal_mask_function, sdpa_mask

from ...ops.masked.flex.functions import dense_planes, planes_of
from ...structures.masks import Planes
from ...structures.masks.asking import Allowed

_known: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""The version of a dense mask, and what was made of it."""


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Allowed = causal_mask_function,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    device: Any = "cpu",
    **more: Any,
) -> Planes | Tensor | None:
    """What ``AttentionMaskInterface`` asks for: the pairs of a function less those of absent keys; on other devices
    than CPUs the mask of ``sdpa``. None where the one query of a decoder attends every key.
    """
    if torch.device(device).type != "cpu":
        asked = {"q_offset": q_offset, "kv_offset": kv_offset, "mask_function": mask_function, "use_vmap": use_vmap}
        return sdpa_mask(batch_size, q_length, kv_length, attention_mask=attention_mask, device=device, **asked, **more)
    before = int(kv_offset)
    present = None if attention_mask is None else _present(attention_mask.bool(), kv_length, before)
    window = more.get("local_size")
    causal = more.get("allow_is_causal_skip", False) and (window is None or kv_length < window)
    if causal and q_length == 1 and (present is None or bool(present.all())):
        return None
    return planes_of(
        mask_function,
        (q_length, kv_length),
        (batch_size, 1),
        pair_by_pair=use_vmap,
        begins=(int(q_offset), before),
        present=present,
    )


def _present(attention_mask: Tensor, keys: int, before: int) -> Tensor:
    """(batch, keys) bool: keys that no mask is for are absent."""
    found = attention_mask[:, before : before + keys]
    return torch.nn.functional.pad(found, (0, keys - found.shape[1]))


def of_tensor(given: Tensor) -> tuple[Planes | None, Tensor | None]:
    """(mask, what is added to scores) of a (batch or 1, heads or 1, queries, keys) tensor of truth values, or of
    numbers that are added to scores. It is looked at once, as long as it is not written to.
    """
    known = _known.get(given)
    if known is None or known[0] != given._version:
        known = _known[given] = given._version, _read(given)
    return known[1]


def _read(given: Tensor) -> tuple[Planes | None, Tensor | None]:
    if given.dtype is torch.bool:
        return dense_planes(given), None
    hidden = given <= torch.finfo(given.dtype).min / 2
    planes = dense_planes(~hidden) if bool(hidden.any()) else None
    return planes, (given if given.requires_grad or bool((given.where(~hidden, 0) != 0).any()) else None)
