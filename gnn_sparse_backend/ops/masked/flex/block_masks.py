"""PyTorch's ``BlockMask`` as a `Mask` that is found again: by its object, or by what its tensors hold."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ....compiler.cache.bounded import KernelCache, shared
from ....structures.masks import Mask, Planes, from_block_mask
from ....structures.masks.block_masks import Lists, converted
from ..programs.modifier import Node
from .evaluated import evaluate
from .recognition import Unknown, contents_of

MOST_MASKS = 32
"""Masks that are kept by the contents of arrays."""
_known: WeakIdKeyDictionary = WeakIdKeyDictionary()
_by_contents: KernelCache[Any, Mask] = shared("masks of arrays", MOST_MASKS)


def mask_of(block_mask: Any) -> Mask:
    """The mask of a ``torch.nn.attention.flex_attention.BlockMask``: of one head for each head of each sequence, or of
    one for all. It is kept with the block mask, as long as what its function reads is not written to.
    """
    contents: Any
    try:
        contents = contents_of(block_mask.mask_mod)
    except Unknown:
        contents = None
    known = _known.get(block_mask)
    if known is not None and contents is not None and known[0] == contents:
        found: Mask = known[1]
        return found
    made = from_block_mask(block_mask)
    made = made.mask if isinstance(made, Planes) else made
    _known[block_mask] = contents, made
    return made


def mask_of_arrays(
    shape: tuple[int, int], sides: tuple[int, int], lists: Sequence[Tensor], allowed: Node, captured: Sequence[Tensor]
) -> Mask:
    """The mask of the arrays of a block mask, and of an expression of where a pair is that reads ``captured``. lists:
    two, or four with those of whole blocks.

    A compiled program writes to tensors that it has for itself, and nobody notes it: the mask is found by what they
    hold.
    """
    digest = hashlib.blake2b(repr((shape, sides, allowed, len(lists))).encode(), digest_size=16)
    for x in (*lists, *captured):
        digest.update(repr((x.dtype, tuple(x.shape))).encode())
        digest.update(x.detach().contiguous().flatten().view(torch.uint8).numpy().data)
    name = digest.digest()
    found = _by_contents.get(name)
    if found is not None:
        return found

    def asked(*places: Tensor) -> Tensor:
        leaves = dict(zip(("batch", "head", "query", "key"), places)) | {"score": torch.zeros(())}
        with torch.no_grad():
            return evaluate(allowed, leaves, captured).expand_as(places[0])

    full: Lists | None = (lists[2], lists[3]) if len(lists) > 2 else None
    return _by_contents.keep(name, converted(shape, sides, (lists[0], lists[1]), full, asked))
