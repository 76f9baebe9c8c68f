"""PyTorch's ``BlockMask`` as a `Mask`, and the reverse.

A block that is partly allowed is asked pair by pair, once, by its function, and becomes a tile. Equal tiles are kept
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from .asking import Allowed, one_by_one
from .blocks import FULL, Blocks, settled, with_uniform
from .mask import Mask

PAIRS = 1 << 22
"""Pairs that are asked at a time."""
Lists: TypeAlias = tuple[Tensor, Tensor]
"""How many blocks each row of blocks has (batch, heads, rows), and which they are (batch, heads, rows, columns)."""


class Planes(NamedTuple):
    """A mask for each head of each sequence, as ``gsb.flex_attention`` takes it.

    mask: its heads are those of each sequence, one sequence behind the other. batch, heads: how many; 1 where one is
    for all.
    """

    mask: Mask
    batch: int
    heads: int

    def dense(self) -> Tensor:
        """(batch or 1, heads or 1, queries, keys) bool, padding counted."""
        found = self.mask.to_dense().unflatten(0, (self.batch, self.heads))
        return found if self.mask.padding is None else found & self.mask.padding[:, None, None, :]


def from_block_mask(block_mask: Any) -> Mask | Planes:
    """Make a mask of a ``torch.nn.attention.flex_attention.BlockMask``, of any size of blocks, one side of which
    divides the other.

    Returns:
        A mask of as many heads as it has; `Planes` where it has masks of several sequences. The block mask's function
        is asked once about the pairs of each block that is partly allowed.

    Raises:
        TypeError: ``block_mask`` is none.
        ValueError: neither side of a block divides the other.
    """
    if not hasattr(block_mask, "mask_mod") or not hasattr(block_mask, "kv_num_blocks"):
        raise TypeError(
            f"from_block_mask: block_mask must be PyTorch's BlockMask, got {type(block_mask).__name__}; "
            "torch.nn.attention.flex_attention.create_block_mask makes one"
        )
    batch, heads = block_mask.kv_num_blocks.shape[:2]
    found = converted(
        tuple(block_mask.seq_lengths),
        block_mask.BLOCK_SIZE,
        (block_mask.kv_num_blocks, block_mask.kv_indices),
        None if block_mask.full_kv_num_blocks is None else (block_mask.full_kv_num_blocks, block_mask.full_kv_indices),
        one_by_one(block_mask.mask_mod),
    ).to(block_mask.kv_indices.device)
    return found if batch == 1 else Planes(found, batch, heads)


def to_block_mask(mask: Mask | Planes) -> Any:
    """Make a ``torch.nn.attention.flex_attention.BlockMask`` of a mask, padding counted: of as many heads, and of as
    many sequences as its padding or its `Planes` have. Its blocks are those of the mask, and its function reads their
    tiles.

    Raises TypeError if ``mask`` is none.
    """
    from torch.nn.attention.flex_attention import BlockMask

    if isinstance(mask, Mask):
        mask = Planes(mask, 1, mask.heads)
    if not isinstance(mask, Planes):
        raise TypeError(f"to_block_mask: mask must be a gsb.masks.Mask or Planes, got {type(mask).__name__}")
    own, batch, heads = mask
    blocks, device = own._blocks(), own.device
    side, (rows, columns) = blocks.block, blocks.grid
    none, every = len(blocks.tiles), len(blocks.tiles) + 1
    code = torch.full((batch * heads * rows, columns), none)
    code[blocks.lines, blocks.columns] = torch.where(blocks.tile < 0, every, blocks.tile)
    code = code.view(batch, heads, rows, columns)
    tiles = with_uniform(blocks.tiles).bool().to(device)
    full, some = code == every, code != none
    if own.padding is not None:
        there = own.padding.cpu()
        beyond = columns * side - there.shape[1]
        full = full & pad(there, (0, beyond), value=True).unflatten(1, (columns, side)).all(2)[:, None, None]
        some = some & pad(there, (0, beyond)).unflatten(1, (columns, side)).any(2)[:, None, None]
    partly, code = some & ~full, code.to(device)
    of_batch, of_head, present = int(batch > 1), int(heads > 1), own.padding
    by_sequence = int(present is not None and present.shape[0] > 1)

    def allowed(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        which = code[b * of_batch, h * of_head, query // side, key // side]
        found = tiles[which, query % side, key % side]
        return found if present is None else found & present[b * by_sequence, key]

    listed = [each for kind in (partly, full) for each in _lists(kind, device)]
    return BlockMask.from_kv_blocks(*listed, BLOCK_SIZE=side, mask_mod=allowed, seq_lengths=own.shape)


def _lists(chosen: Tensor, device: torch.device) -> Lists:
    order = chosen.byte().argsort(dim=3, descending=True, stable=True)
    return chosen.sum(3).int().to(device), order.int().to(device)


def converted(
    shape: tuple[int, int], sides: Sequence[int], partial: Lists, full: Lists | None, allowed: Allowed
) -> Mask:
    """The mask, of one head for each head of each sequence, of lists of blocks that are partly and wholly allowed.

    shape: (queries, keys). sides: of a block, of queries and of keys. allowed: a function of vectors.
    """
    tall, wide = sides
    side = min(tall, wide)
    if tall % side or wide % side:
        raise ValueError(f"flex_attention: one side of a block must divide the other, got BLOCK_SIZE {(tall, wide)}")
    batch, heads = partial[0].shape[:2]
    tiles = [torch.zeros(0, tall, wide, dtype=torch.uint8)]
    plane, row, column = listed = _listed(partial)
    for part in torch.arange(plane.numel()).split(max(1, PAIRS // (tall * wide))):
        tiles.append(_asked(allowed, heads, (plane[part], row[part], column[part]), (tall, wide), shape))
    every, numbers = [listed], [torch.arange(plane.numel())]
    if full is not None:
        every.append(_listed(full))
        numbers.append(torch.full_like(every[1][0], FULL))
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


def _listed(lists: Lists) -> tuple[Tensor, Tensor, Tensor]:
    """(plane, row, column) of each block."""
    counts, indices = (each.cpu() for each in lists)
    there = torch.arange(indices.shape[3]) < counts[..., None]
    batch, head, row, place = there.nonzero(as_tuple=True)
    return batch * counts.shape[1] + head, row, indices[batch, head, row, place].long()


def _asked(
    allowed: Allowed, heads: int, at: tuple[Tensor, Tensor, Tensor], sides: tuple[int, int], shape: tuple[int, int]
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
        found[within] = allowed(*asked).to(torch.uint8)
    return found.view(-1, tall, wide)
