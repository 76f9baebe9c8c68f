"""What kernels are given of a mask: arrays that it keeps once they are made."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...structures.derived import fact
from ...structures.masks import Mask


@fact
def tile_columns(mask: Mask, line: int) -> tuple[Tensor, Tensor]:
    """(tiles column by column, each of so many rows; which columns of a tile are in any pair). One tile at least."""
    tiles = mask.tiles
    if not tiles.shape[0]:
        tiles = tiles.new_zeros(1, mask.block, mask.block)
    columns = torch.nn.functional.pad(tiles.transpose(1, 2), (0, line - mask.block)).contiguous()
    return columns.flatten(1), tiles.amax(1)


class Tasks(NamedTuple):
    """Items of equal cost for each task, and where the blocks of each item begin, counted over all items."""

    task_ptr: Tensor
    block_ptr: Tensor
    first_item: Tensor
    count: int


@fact
def tasks_of(mask: Mask, groups: int, count: int, whole: int = 1) -> Tasks:
    """Tasks over so many groups of the mask's lines. whole: a task begins at a multiple of so many items."""
    per_line = mask.indptr.diff()
    if groups * mask.num_blocks > 2**31 - 1 or groups * per_line.numel() > 2**31 - 1:
        raise ValueError(
            f"{mask} has too many blocks for {groups} groups of heads and sequences; give fewer sequences at a time"
        )
    ends = torch.cat([per_line.new_zeros(1), per_line.repeat(groups)]).cumsum(0)
    items = ends.numel() - 1
    # a row of blocks has a cost of its own
    cost = (ends + torch.arange(items + 1, dtype=ends.dtype, device=ends.device))[::whole]
    count = max(1, min(count, items // whole))
    wanted = torch.arange(1, count, dtype=torch.float64, device=ends.device) * (float(cost[-1]) / count)
    cuts = torch.searchsorted(cost.double(), wanted) * whole
    task_ptr = torch.cat([cuts.new_zeros(1), cuts, cuts.new_full((1,), items)]).int()
    return Tasks(task_ptr, ends.int(), task_ptr[:-1].contiguous(), count)
