"""PyTorch's ``BlockMask`` as a `Mask`.

A block that is partly allowed is asked pair by pair, once, by its function, and becomes a tile. Equal tiles are kept
once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ....structures.masks import Mask
from ....structures.masks.blocks import FULL, Blocks, settled
from .recognition import Unknown, contents_of
from .trace import Indexing

PAIRS = 1 << 22
"""Pairs that are asked at a time."""


class Planes(NamedTuple):
    """A mask whose heads are those of each sequence, one sequence behind the other. batch, heads: how many; 1 where one
    is for all.
    """

    mask: Mask
    batch: int
    heads: int

    def dense(self) -> Tensor:
        """(batch or 1, heads or 1, queries, keys) bool, padding counted."""
        found = self.mask.to_dense().unflatten(0, (self.batch, self.heads))
        return found if self.mask.padding is None else found & self.mask.padding[:, None, None, :]


_known: WeakIdKeyDictionary = WeakIdKeyDictionary()


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
    made = _converted(block_mask)
    _known[block_mask] = contents, made
    return made


def _converted(block_mask: Any) -> Mask:
    shape = tuple(block_mask.seq_lengths)
    tall, wide = block_mask.BLOCK_SIZE
    side = min(tall, wide)
    if tall % side or wide % side:
        raise ValueError(f"flex_attention: one side of a block must divide the other, got BLOCK_SIZE {(tall, wide)}")
    batch, heads = block_mask.kv_num_blocks.shape[:2]
    partial = _listed(block_mask.kv_num_blocks, block_mask.kv_indices)
    full = None
    if block_mask.full_kv_num_blocks is not None:
        full = _listed(block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    tiles = [torch.zeros(0, tall, wide, dtype=torch.uint8)]
    plane, row, column = partial
    for part in torch.arange(plane.numel()).split(max(1, PAIRS // (tall * wide))):
        at = plane[part], row[part], column[part]
        tiles.append(_asked(block_mask.mask_mod, heads, at, (tall, wide), shape))
    every, numbers = [partial], [torch.arange(plane.numel())]
    if full is not None:
        every.append(full)
        numbers.append(torch.full_like(full[0], FULL))
    lines, rows, columns = (torch.cat(each) for each in zip(*every))
    tile, stored = torch.cat(numbers), torch.cat(tiles)
    # blocks that are no squares are cut into some
    down, across = tall // side, wide // side
    if down * across > 1:
        stored = stored.view(-1, down, side, across, side).transpose(2, 3).reshape(-1, side, side)
        i, j = torch.arange(down)[:, None], torch.arange(across)[None]
        tile = torch.where(tile[:, None, None] < 0, FULL, tile[:, None, None] * down * across + i * across + j)
        lines = lines[:, None, None].expand_as(tile).reshape(-1)
        rows = (rows[:, None, None] * down + i).expand_as(tile).reshape(-1)
        columns = (columns[:, None, None] * across + j).expand_as(tile).reshape(-1)
        tile = tile.reshape(-1)
    blocks = Blocks(shape, batch * heads, side, lines, columns, tile, stored)
    there = (rows < blocks.grid[0]) & (columns < blocks.grid[1])
    found = blocks._replace(lines=(lines * blocks.grid[0] + rows)[there], columns=columns[there], tile=tile[there])
    return Mask._of_blocks(settled(found))


def _listed(counts: Tensor, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(plane, row, column) of each block that ``counts`` (batch, heads, rows) has of ``indices``."""
    there = torch.arange(indices.shape[3]) < counts[..., None]
    batch, head, row, place = there.nonzero(as_tuple=True)
    return batch * counts.shape[1] + head, row, indices[batch, head, row, place].long()


def _asked(
    mask_mod: Callable[..., Tensor],
    heads: int,
    at: tuple[Tensor, Tensor, Tensor],
    sides: tuple[int, int],
    shape: tuple[int, ...],
) -> Tensor:
    """(blocks, tall, wide) uint8 which pairs the function allows. Those beyond the last query or key are not asked."""
    (plane, row, column), (tall, wide) = at, sides
    query = row[:, None] * tall + torch.arange(tall)
    key = column[:, None] * wide + torch.arange(wide)
    every = torch.broadcast_tensors(
        (plane // heads)[:, None, None], (plane % heads)[:, None, None], query[:, :, None], key[:, None, :]
    )
    within = ((every[2] < shape[0]) & (every[3] < shape[1])).flatten()
    asked = [each.flatten()[within] for each in every]
    found = torch.zeros(within.numel(), dtype=torch.uint8)
    if asked[0].numel():
        with torch.no_grad(), Indexing():
            found[within] = torch.vmap(mask_mod)(*asked).to(torch.uint8)
    return found.view(-1, tall, wide)
