"""Masks among the arguments of ``torch.library``'s operators: as their arrays."""

from __future__ import annotations

import torch
from torch import Tensor

from ...structures.checks import check_ranges
from ...structures.masks import Mask
from ..core.traced import Traced, owned


def traced_mask(mask: Mask) -> Traced:
    """What stands for a mask."""
    arrays = mask.indptr, mask.indices, mask.tile, mask.tiles, mask.padding  # PyTorch 2.4 traces no property here
    return Traced((*arrays, *mask.shape, mask.heads))


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


MASK = owned(
    (
        *("Tensor indptr", "Tensor indices", "Tensor tile", "Tensor tiles", "Tensor? padding"),
        *("SymInt queries", "SymInt keys", "SymInt mask_heads"),
    ),
    traced_mask,
    Mask,
    _checked,
)
