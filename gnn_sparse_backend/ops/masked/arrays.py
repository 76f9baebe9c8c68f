"""What kernels are given of a mask: arrays that it keeps once they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...structures.derived import fact
from ...structures.masks import Mask, from_dense, padding


@fact
def tile_columns(mask: Mask, line: int) -> tuple[Tensor, Tensor, Tensor]:
    """(tiles column by column, each of ``line`` rows: zeros fill it up, or the last ones are none; which columns
    of a tile are in any pair; which rows are). One tile at least.
    """
    tiles = mask.tiles.numpy()
    if not len(tiles):
        tiles = np.zeros((1, mask.block, mask.block), np.uint8)
    columns = np.zeros((len(tiles), mask.block, line), np.uint8)
    rows = min(line, mask.block)
    columns[:, :, :rows] = tiles[:, :rows].transpose(0, 2, 1)
    found = columns.reshape(len(tiles), -1), tiles.max(1), tiles.max(2)
    return tuple(map(torch.from_numpy, found))  # type: ignore[return-value]


@fact
def tile_reach(mask: Mask, line: int, group: int) -> Tensor:
    """The first column that any row of a group of ``group`` rows has, and the one behind the last, 0 and 0 where there
    is none: flat int32, for each group and then all rows, of a block without a tile and then of each tile.
    """
    columns = tile_columns(mask, line)[0].numpy().reshape(-1, mask.block, line).astype(bool)
    columns = np.concatenate([np.ones((1, mask.block, line), bool), columns])
    groups = [columns[:, :, first : first + group] for first in range(0, line, group)]
    some = np.stack([part.any(2) for part in (*groups, columns)], 1)  # (tiles, groups and all, columns)
    behind = np.where(some.any(2), mask.block - some[:, :, ::-1].argmax(2), 0)
    return torch.from_numpy(np.stack([some.argmax(2), behind], 2).astype(np.int32).ravel())


@fact
def narrowed(mask: Mask, side: int) -> Mask:
    """Return a mask of the pairs in blocks of that side, without padding. One of at most ``side`` queries has no tiles
    where these attend all keys of a block: rows beyond the last query are nobody's.
    """
    found = mask if mask.block == side else mask.with_block(side)
    indptr, indices, tile, tiles = found._arrays[:4]
    if mask.shape[0] <= side:
        whole = tiles[:, : mask.shape[0]].flatten(1).bool().all(1)
        tile = torch.where(torch.cat([whole, whole.new_ones(1)])[tile.long()], -1, tile)
    return Mask._make(found.shape, found.heads, found.block, (indptr, indices, tile, tiles))


@fact
def repeated(mask: Mask, times: int) -> Mask:
    """Return a mask with its queries again and again, ``times`` times. They are few."""
    rows = mask.shape[0] * times
    if rows <= mask.block:
        indptr, indices, tile, tiles = mask._arrays[:4]
        tiles = torch.nn.functional.pad(tiles[:, : mask.shape[0]].repeat(1, times, 1), (0, 0, 0, mask.block - rows))
        found = Mask._make((rows, mask.shape[1]), mask.heads, mask.block, (indptr, indices, tile, tiles))
    else:
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
    """Where the blocks of each line of all groups end, 0 before them, int64."""
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
    ends = _ends(mask, groups).numpy()
    # a row of blocks has a cost of its own
    at = np.arange(len(ends))
    cost, may_end = (ends + at).astype(np.float64), at
    if parts:
        within = -(np.arange(parts) * -mask.block_rows // parts)
        starts = np.arange(groups * mask.heads)[:, None] * mask.block_rows
        may_end = np.append((starts + within).ravel(), at[-1])
    wanted = np.arange(1, count) * (cost[-1] / count)
    cuts = may_end[np.searchsorted(cost[may_end], wanted)]
    task_ptr = np.unique(np.concatenate([may_end[:1], cuts, may_end[-1:]])).astype(np.int32)
    (columns, some, some_row), reach = tile_columns(mask, line), tile_reach(mask, line, group)
    return found | {
        "num_tasks": len(task_ptr) - 1,
        "num_tiles": columns.shape[0],
        "num_reach": reach.numel(),
        "task_ptr": torch.from_numpy(task_ptr),
        "block_ptr": torch.from_numpy(ends.astype(np.int32)),
        "FirstItem": torch.from_numpy(task_ptr[:-1].copy()),
        "Tiles": columns,
        "Reach": reach,
        "Some": some,
        "SomeRow": some_row,
    }
