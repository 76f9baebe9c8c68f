"""Blocks to blocks: union and intersection, other sides of a block, transposition, heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...formats.counts import prefix_sums
from ...formats.structure import positions_of_rows
from .blocks import NONE, Blocks, check_blocks, distinct, paired, settled, with_uniform


def combined(a: Blocks, b: Blocks, combine: Callable[[Tensor, Tensor], Tensor]) -> Blocks:
    """What ``combine`` makes of each block of both, in blocks whose side divides those of both."""
    side = math.gcd(a.block, b.block)
    a, b = (repeated(with_side(each, side), max(a.heads, b.heads)) for each in (a, b))
    keys = torch.unique(torch.cat([a.keys, b.keys]))
    codes = [
        torch.full_like(keys, NONE).index_put((torch.searchsorted(keys, each.keys),), each.tile) for each in (a, b)
    ]
    tile, tiles = paired((codes[0], a.tiles), (codes[1], b.tiles), combine)
    columns = max(a.grid[1], 1)
    return settled(a._replace(lines=keys // columns, columns=keys % columns, tile=tile, tiles=tiles))


def repeated(blocks: Blocks, heads: int) -> Blocks:
    """Return the one head of a mask repeated to ``heads`` heads."""
    return blocks if blocks.heads == heads else stacked([blocks] * heads)


def stacked(parts: Sequence[Blocks]) -> Blocks:
    """The heads of all of them, one after the other."""
    side = math.gcd(*(part.block for part in parts))
    parts = [with_side(part, side) for part in parts]
    check_blocks(sum(len(part.lines) for part in parts), "what the heads have together")
    lines, tile, heads, tiles = [], [], 0, 0
    for part in parts:
        lines.append(part.lines + heads * part.grid[0])
        tile.append(torch.where(part.tile < 0, part.tile, part.tile + tiles))
        heads, tiles = heads + part.heads, tiles + len(part.tiles)
    return settled(
        parts[0]._replace(
            heads=heads,
            lines=torch.cat(lines),
            columns=torch.cat([part.columns for part in parts]),
            tile=torch.cat(tile),
            tiles=torch.cat([part.tiles for part in parts]),
        )
    )


def with_side(blocks: Blocks, side: int) -> Blocks:
    """Return the pairs in blocks of another side."""
    if side == blocks.block:
        return blocks
    small = math.gcd(blocks.block, side)
    return _grown(_cut(blocks, blocks.block // small), side // small)


def _cut(blocks: Blocks, parts: int) -> Blocks:
    """Cut blocks into ``parts`` x ``parts`` smaller ones."""
    if parts == 1:
        return blocks
    side, rows = blocks.block // parts, max(blocks.grid[0], 1)
    check_blocks(len(blocks.lines) * parts**2, f"a mask cut into blocks of {side}")
    small = blocks._replace(block=side)
    i, j = (torch.arange(parts).view(shape) for shape in ((1, -1, 1), (1, 1, -1)))
    head, row = ((each).view(-1, 1, 1) for each in (blocks.lines // rows, blocks.lines % rows))
    tile = blocks.tile.view(-1, 1, 1)
    row, column = torch.broadcast_tensors(row * parts + i, blocks.columns.view(-1, 1, 1) * parts + j)
    tile = torch.where(tile < 0, tile, tile * parts**2 + i * parts + j)
    tiles = blocks.tiles.view(-1, parts, side, parts, side).transpose(2, 3).reshape(-1, side, side)
    there = (row < small.grid[0]) & (column < small.grid[1])
    lines = (head * small.grid[0] + row)[there]
    return settled(small._replace(lines=lines, columns=column[there], tile=tile[there], tiles=tiles))


def _grown(blocks: Blocks, parts: int) -> Blocks:
    """Put ``parts`` x ``parts`` neighbouring blocks together to larger ones."""
    if parts == 1:
        return blocks
    side, small = blocks.block, max(blocks.grid[0], 1)
    large = blocks._replace(block=side * parts)
    row, head = blocks.lines % small, blocks.lines // small
    columns = max(large.grid[1], 1)
    keys, which = torch.unique(
        (head * large.grid[0] + row // parts) * columns + blocks.columns // parts, return_inverse=True
    )
    of_parts = torch.full((len(keys), parts**2), NONE)
    of_parts[which, row % parts * parts + blocks.columns % parts] = blocks.tile
    first, tile = distinct(of_parts)
    tiles = with_uniform(blocks.tiles)[of_parts[first]].view(-1, parts, parts, side, side).transpose(2, 3)
    tiles = tiles.reshape(-1, side * parts, side * parts)
    return settled(large._replace(lines=keys // columns, columns=keys % columns, tile=tile, tiles=tiles))


def transposed(blocks: Blocks) -> tuple[Blocks, Tensor]:
    """Keys for queries, and for each block of the result the block that it was."""
    rows, columns = blocks.grid
    head = blocks.lines // max(rows, 1)
    lines = head * columns + blocks.columns
    order = torch.argsort(lines, stable=True)  # rows ascend already
    made = blocks._replace(
        shape=blocks.shape[::-1],
        lines=lines[order],
        columns=(blocks.lines % max(rows, 1))[order],
        tile=blocks.tile[order],
        tiles=blocks.tiles.transpose(1, 2).contiguous(),
    )
    return settled(made), order  # which leaves the order of blocks


def pairs(blocks: Blocks, head: int) -> tuple[Tensor, Tensor]:
    """(queries, keys) of the allowed pairs of one head, row by row."""
    side, rows = blocks.block, max(blocks.grid[0], 1)
    of_head = (blocks.lines // rows == head).nonzero().view(-1)
    row, column, tile = blocks.lines[of_head] % rows, blocks.columns[of_head], blocks.tile[of_head]
    uniform = with_uniform(blocks.tiles).flatten(1)
    begin, place = prefix_sums(uniform.sum(1)), uniform.nonzero()[:, 1]
    tile = torch.where(tile < 0, tile + len(uniform), tile)
    at = place[positions_of_rows(begin, tile)[1]]
    query, key = (
        each.repeat_interleave(begin.diff()[tile]) * side + within
        for each, within in ((row, at // side), (column, at % side))
    )
    order = torch.argsort(query * blocks.shape[1] + key)
    return query[order], key[order]


def dense(blocks: Blocks) -> Tensor:
    """(heads, queries, keys) bool."""
    (rows, columns), side = blocks.grid, blocks.block
    out = torch.zeros(blocks.heads * rows, columns, side, side, dtype=torch.bool)
    out[blocks.lines, blocks.columns] = with_uniform(blocks.tiles)[blocks.tile].bool()
    out = out.view(blocks.heads, rows, columns, side, side).transpose(2, 3)
    out = out.reshape(blocks.heads, rows * side, columns * side)
    return out[:, : blocks.shape[0], : blocks.shape[1]].contiguous()
