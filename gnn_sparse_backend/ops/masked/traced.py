"""Masks among the arguments of ``torch.library``'s operators: as their arrays."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...structures.checks import check_ranges, plain_tensor
from ...structures.masks import Mask
from ...structures.masks.mask import find_live
from ..core.operands import is_plain
from ..core.traced import StructureKind, Traced


def traced_mask(mask: Mask) -> Traced:
    """What stands for a mask."""
    arrays = mask.indptr, mask.indices, mask.tile, mask.tiles, mask.padding  # PyTorch 2.4 traces no property here
    return Traced((*arrays, *mask.shape, mask.heads))


def _find(arguments: tuple) -> Mask | None:
    return find_live(arguments[:5], arguments[5:7], arguments[7])


def _mask(arguments: tuple, operands: Any) -> Mask:
    arguments = tuple(plain_tensor(a) if isinstance(a, Tensor) else a for a in arguments)
    found = _find(arguments)
    return _checked(*arguments) if found is None else found


def _checked(
    indptr: Tensor,
    indices: Tensor,
    tile: Tensor,
    tiles: Tensor,
    padding: Tensor | None,
    queries: int,
    keys: int,
    heads: int,
) -> Mask:
    """A mask of arrays that may be anybody's."""
    block = tiles.shape[1] if tiles.dim() == 3 else 0
    rows = -(-queries // block) if block else 0
    fits = tiles.dim() == 3 and tiles.shape[1:] == (block, block) and tiles.dtype is torch.uint8 and block > 0
    fits = fits and indptr.shape == (heads * rows + 1,) and indices.shape == tile.shape == (indices.numel(),)
    fits = fits and all(a.dtype is torch.int32 for a in (indptr, indices, tile))
    fits = fits and int(indptr[0]) == 0 and int(indptr[-1]) == indices.numel() and bool((indptr.diff() >= 0).all())
    if not fits:
        raise ValueError(
            f"mask: arrays of shapes {tuple(indptr.shape)}, {tuple(indices.shape)}, {tuple(tile.shape)} and "
            f"{tuple(tiles.shape)} are no mask of {queries} queries, {keys} keys and {heads} heads"
        )
    check_ranges(
        ("indices", indices, -(-keys // block), "columns of blocks"),
        ("tile", tile + 1, tiles.shape[0] + 1, "tiles, beside -1,"),
    )
    return Mask._make((queries, keys), heads, block, (indptr, indices, tile, tiles), padding)


def _hold(arguments: tuple) -> Mask | None:
    """In eager mode the mask lives until the backward pass, with what it has derived."""
    return _find(arguments) if is_plain(*arguments[:5]) else None


MASK = StructureKind(
    (
        *("Tensor indptr", "Tensor indices", "Tensor tile", "Tensor tiles", "Tensor? padding"),
        *("SymInt queries", "SymInt keys", "SymInt mask_heads"),
    ),
    traced_mask,
    _mask,
    hold=_hold,
)
