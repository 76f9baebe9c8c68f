"""The blocks of a mask as plain arrays, and the one form in which a mask keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

FULL, NONE = -1, -2
"""What stands for a tile of which every pair, or no pair, is allowed."""
MOST_BLOCKS = 2**31 - 1


class Blocks(NamedTuple):
    """Blocks of pairs (query, key), in any order.

    lines: of each block its row of blocks, those of the second head behind those of the first. columns: its column of
    blocks. tile: its place in tiles, FULL or NONE. tiles: (T, block, block) uint8, 1 where a pair is allowed.
    """

    shape: tuple[int, int]
    heads: int
    block: int
    lines: Tensor
    columns: Tensor
    tile: Tensor
    tiles: Tensor

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of blocks of one head."""
        return -(-self.shape[0] // self.block), -(-self.shape[1] // self.block)

    @property
    def keys(self) -> Tensor:
        """A number for each block, in whose order a mask has them."""
        return self.lines * self.grid[1] + self.columns


def no_tiles(block: int) -> Tensor:
    return torch.zeros(0, block, block, dtype=torch.uint8)


def check_blocks(count: int, what: str) -> None:
    """Raise ValueError if a mask has more blocks than can be numbered."""
    if count > MOST_BLOCKS:
        raise ValueError(f"{what} has {count} blocks, and a mask at most {MOST_BLOCKS}: make the blocks larger")


def settled(blocks: Blocks) -> Blocks:
    """Return the pairs in the one form that a mask has for them, so that equal masks have equal arrays: blocks in
    order, none of them empty, those with every pair FULL, no two tiles alike, nothing beyond the last query or key.
    """
    blocks = _within(blocks)
    count, area = len(blocks.tiles), blocks.block**2
    sums = blocks.tiles.sum((1, 2))
    used = torch.bincount(blocks.tile.clamp(min=FULL) + 1, minlength=count + 1)[1:] > 0
    number = torch.where(sums == area, FULL, NONE)
    partial = ((sums > 0) & (sums < area) & used).nonzero().view(-1)
    first, number[partial] = distinct(blocks.tiles[partial].view(-1, area))
    tile = torch.cat([number, number.new_tensor([NONE, FULL])])[blocks.tile]
    keys = blocks.keys
    if bool((keys[1:] < keys[:-1]).any()):
        order = torch.argsort(keys)
        order = order[tile[order] != NONE]
    else:
        order = (tile != NONE).nonzero().view(-1)
    return blocks._replace(
        lines=blocks.lines[order],
        columns=blocks.columns[order],
        tile=tile[order],
        tiles=blocks.tiles[partial[first]],
    )


def paired(
    first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], combine: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """What ``combine`` makes of two tiles of each block, once for each two that meet: (tile, tiles)."""
    (tile, tiles), (other, others) = first, second
    count = len(others) + 2
    met, which = torch.unique((tile + 2) * count + other + 2, return_inverse=True)
    return which, combine(with_uniform(tiles)[met // count - 2], with_uniform(others)[met % count - 2])


def with_uniform(tiles: Tensor) -> Tensor:
    """The tiles, and behind them, where NONE and FULL find them, those that these stand for."""
    uniform = tiles.new_zeros(2, *tiles.shape[1:])
    uniform[1] = 1
    return torch.cat([tiles, uniform])


def _within(blocks: Blocks) -> Blocks:
    """Remove the pairs beyond the last query or key."""
    block, (rows, columns) = blocks.block, blocks.grid
    beyond = [size % block for size in blocks.shape]
    edges = torch.ones(3, block, block, dtype=torch.uint8)  # of the last row, of the last column, of both
    edges[0::2, beyond[0] or block :] = 0
    edges[1:, :, beyond[1] or block :] = 0
    last_row = (blocks.lines % max(rows, 1) == rows - 1) & (beyond[0] > 0)
    last_column = (blocks.columns == columns - 1) & (beyond[1] > 0)
    edge = last_row.long() + 2 * last_column.long()
    at = edge.nonzero().view(-1)
    if not len(at):
        return blocks
    which, tiles = paired((blocks.tile[at], blocks.tiles), (edge[at] - 1, edges), torch.bitwise_and)
    tile = blocks.tile.index_put((at,), which + len(blocks.tiles))
    return blocks._replace(tile=tile, tiles=torch.cat([blocks.tiles, tiles]))


def distinct(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(one place of each content, in the order of contents; which of these each row has) of (N, W) zeros and ones, or
    integers.
    """
    array = rows.contiguous().numpy()
    array = np.ascontiguousarray(np.packbits(array, axis=1) if array.dtype in (np.uint8, np.bool_) else array)
    if not array.size:
        return torch.zeros(min(len(rows), 1), dtype=torch.int64), torch.zeros(len(rows), dtype=torch.int64)
    whole = array.view(np.dtype((np.void, array.shape[1] * array.itemsize))).reshape(-1)
    _, first, which = np.unique(whole, return_index=True, return_inverse=True)
    return torch.from_numpy(first), torch.from_numpy(which.reshape(-1))
