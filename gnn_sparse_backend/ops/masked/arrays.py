"""What kernels are given of a mask: arrays that it keeps once they are made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...structures.derived import fact
from ...structures.masks import Mask, from_dense, padding


@fact
def tile_columns(mask: Mask, line: int) -> tuple[Tensor, Tensor, Tensor]:
    """(tiles column by column, each of ``line`` rows: zeros fill it up, or the last ones are none; which columns
    of a tile are in any pair; which rows are). One tile at least.
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
def repeated(mask: Mask, times: int) -> Mask:
    """Return a mask with its queries again and again, ``times`` times. They are few."""
    found = from_dense(mask.to_dense().repeat(1, times, 1), block=mask.block, of="heads")
    return found if mask.padding is None else found & padding(mask.padding)


@fact
def shared_out(mask: Mask, shares: int) -> Mask:
    """Return a mask of ``shares`` heads for each row of blocks, of which each has about as many of its blocks; without
    padding.
    """
    begins, lengths = mask.indptr[:-1, None].long(), mask.indptr.diff().long()[:, None]
    cuts = begins + lengths * torch.arange(shares) // shares
    indptr = torch.cat([cuts.flatten(), mask.indptr[-1:].long()]).int()
    return Mask._make(mask.shape, mask.heads * shares, mask.block, (indptr, *mask._arrays[1:4]))


@fact
def value_order(mask: Mask, transposed: bool) -> Tensor:
    """Which block of the mask each block is, of it or its transpose."""
    if transposed:
        return mask.transposed_order
    return torch.arange(mask.num_blocks, dtype=torch.int32, device=mask.device)


def without_padding(mask: Mask) -> Mask:
    """The mask with all keys, which shares what is derived of it."""
    if mask.padding is None:
        return mask
    return Mask._make(mask.shape, mask.heads, mask.block, mask._arrays[:4], None, mask.facts)


def some_feature(x: Tensor) -> Tensor:
    """x with one feature, a zero, in the place of none: so scores are 0."""
    return x if x.shape[3] else x.new_zeros((*x.shape[:3], 1))


@fact
def structure_of(mask: Mask, batch: int, heads: int) -> dict[str, Any]:
    """Sizes and arrays of a mask, or of its transpose, by the names of the parameters: what all kernels are given."""
    groups, lines = batch * heads // mask.heads, mask.indptr.numel() - 1
    if groups * max(mask.num_blocks, lines) > 2**31 - 1:  # int32 counts the blocks of all groups
        raise ValueError(
            f"{mask} has too many blocks for {groups} groups of heads and sequences; give fewer sequences at a time"
        )
    return {
        "num_items": groups * lines,
        "num_item_blocks": groups * mask.num_blocks,
        "num_blocks": mask.num_blocks,
        "lines": lines,
        "block_rows": mask.block_rows,
        "mask_heads": mask.heads,
        "heads": heads,
        "rows": mask.shape[0],
        "cols": mask.shape[1],
        "num_rows": batch * heads * mask.shape[0],
        "First": mask.indptr[:-1].contiguous(),
        "Indices": mask.indices,
        "Tile": mask.tile,
    }


def padding_of(padding: Tensor | None, batch: int) -> dict[str, Any]:
    """Which keys of each sequence are there, by the names of the parameters."""
    if padding is None:
        return {}
    allowed = padding.to(torch.uint8).expand(batch, -1).reshape(-1)
    return {"padded": allowed.numel(), "Padding": allowed}


def _ends(mask: Mask, groups: int) -> Tensor:
    per_line = mask.indptr.diff()
    return torch.cat([per_line.new_zeros(1), per_line.repeat(groups)]).cumsum(0)


@fact
def team_structure(mask: Mask, batch: int, heads: int) -> dict[str, Any]:
    """What kernels of teams are given: also where the blocks of each line of all groups begin, and some tile."""
    tiles = mask.tiles if mask.tiles.shape[0] else mask.tiles.new_zeros(1, mask.block, mask.block)
    ends = _ends(mask, batch * heads // mask.heads).int()
    return structure_of(mask, batch, heads) | {"num_tiles": tiles.shape[0], "block_ptr": ends, "Tiles": tiles}


@fact
def task_structure(
    mask: Mask, batch: int, heads: int, line: int, group: int, count: int, parts: int = 0
) -> dict[str, Any]:
    """What kernels of tasks are given: also the lines of all groups cut into ``count`` tasks of equal cost, and tiles
    column by column. line, group: as of `tile_columns` and `tile_reach`. parts: cuts are where one of ``parts`` parts
    of a head ends; 0: at any line.
    """
    found, groups = structure_of(mask, batch, heads), batch * heads // mask.heads
    ends = _ends(mask, groups)
    # a row of blocks has a cost of its own
    cost = (ends + torch.arange(ends.numel(), device=ends.device)).double()
    may_end = torch.arange(ends.numel(), device=ends.device)
    if parts:
        within = -(torch.arange(parts) * -mask.block_rows // parts)
        starts = torch.arange(groups * mask.heads).unsqueeze(1) * mask.block_rows
        may_end = torch.cat([(starts + within).flatten(), may_end[-1:]])
    wanted = torch.arange(1, count, dtype=torch.float64) * (float(cost[-1]) / count)
    cuts = may_end[torch.searchsorted(cost[may_end], wanted)]
    task_ptr = torch.cat([may_end[:1], cuts, may_end[-1:]]).unique().int()
    (columns, some, some_row), reach = tile_columns(mask, line), tile_reach(mask, line, group)
    return found | {
        "num_tasks": task_ptr.numel() - 1,
        "num_tiles": columns.shape[0],
        "num_reach": reach.numel(),
        "task_ptr": task_ptr,
        "block_ptr": ends.int(),
        "FirstItem": task_ptr[:-1].contiguous(),
        "Tiles": columns,
        "Reach": reach,
        "Some": some,
        "SomeRow": some_row,
    }
