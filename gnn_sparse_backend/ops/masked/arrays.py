"""What kernels are given of a mask: arrays that it keeps once they are made."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...structures.derived import fact
from ...structures.masks import Mask


@fact
def tile_columns(mask: Mask, line: int) -> tuple[Tensor, Tensor, Tensor]:
    """(tiles column by column, each padded to ``line`` rows; which columns of a tile are in any pair; which rows are).
    One tile at least.
    """
    tiles = mask.tiles
    if not tiles.shape[0]:
        tiles = tiles.new_zeros(1, mask.block, mask.block)
    columns = torch.nn.functional.pad(tiles.transpose(1, 2), (0, line - mask.block)).contiguous()
    return columns.flatten(1), tiles.amax(1), tiles.amax(2)


@fact
def tile_reach(mask: Mask, line: int, group: int) -> Tensor:
    """The first column that any row of a group of ``group`` rows has, and the one behind the last, 0 and 0 where there
    is none: flat int32, for each group and then all rows, of a block without a tile and then of each tile.
    """
    columns = tile_columns(mask, line)[0].view(-1, mask.block, line)
    columns = torch.cat([columns.new_ones(1, mask.block, line), columns])
    parts = [part.amax(2) for part in (*columns.split(group, 2), columns)]
    some = torch.stack(parts, 1).bool()  # (tiles, groups and all, columns)
    at = torch.arange(mask.block, device=mask.device)
    first = torch.where(some, at, mask.block).amin(2)
    behind = torch.where(some, at + 1, 0).amax(2)
    return torch.stack([first.minimum(behind), behind], 2).int().flatten()


SIDE = 64
"""Side of the blocks that large ones are cut into."""


@fact
def narrowed(mask: Mask) -> Mask:
    """Return a mask of the pairs in smaller blocks, without padding."""
    found = mask.with_block(SIDE)
    return Mask._make(found.shape, found.heads, found.block, found._arrays[:4])


@fact
def value_order(mask: Mask, transposed: bool) -> Tensor:
    """Which block of the mask each block is, of it or its transpose."""
    if transposed:
        return mask.transposed_order
    return torch.arange(mask.num_blocks, dtype=torch.int32, device=mask.device)


def check_blocks(mask: Mask, groups: int, lines: int) -> None:
    """Raises ValueError where int32 does not count the blocks of all groups."""
    if groups * max(mask.num_blocks, lines) > 2**31 - 1:
        raise ValueError(
            f"{mask} has too many blocks for {groups} groups of heads and sequences; give fewer sequences at a time"
        )


def _ends(mask: Mask, groups: int) -> Tensor:
    per_line = mask.indptr.diff()
    return torch.cat([per_line.new_zeros(1), per_line.repeat(groups)]).cumsum(0)


@fact
def item_ends(mask: Mask, groups: int) -> Tensor:
    """Where the blocks of each line of a mask begin, counted over ``groups`` groups of heads and sequences."""
    return _ends(mask, groups).int()


class Tasks(NamedTuple):
    """Items of equal cost for each task, where the blocks of each item begin, counted over all items, and where those
    of each line of the mask do.
    """

    task_ptr: Tensor
    block_ptr: Tensor
    first_item: Tensor
    first: Tensor
    count: int


@fact
def tasks_of(mask: Mask, groups: int, count: int, parts: int = 0) -> Tasks:
    """Cut the lines of all groups of the mask into ``count`` tasks. parts: cuts are where one of ``parts`` parts of a
    head ends; 0: at any line.
    """
    check_blocks(mask, groups, mask.indptr.numel() - 1)
    ends = _ends(mask, groups)
    # a row of blocks has a cost of its own
    cost = (ends + torch.arange(ends.numel(), device=ends.device)).double()
    may_end = torch.arange(ends.numel(), device=ends.device)
    if parts:
        within = -(torch.arange(parts) * -mask.block_rows // parts)
        heads = torch.arange(groups * mask.heads).unsqueeze(1) * mask.block_rows
        may_end = torch.cat([(heads + within).flatten(), may_end[-1:]])
    wanted = torch.arange(1, count, dtype=torch.float64) * (float(cost[-1]) / count)
    cuts = may_end[torch.searchsorted(cost[may_end], wanted)]
    task_ptr = torch.cat([may_end[:1], cuts, may_end[-1:]]).unique().int()
    return Tasks(task_ptr, ends.int(), task_ptr[:-1].contiguous(), mask.indptr[:-1].contiguous(), task_ptr.numel() - 1)
