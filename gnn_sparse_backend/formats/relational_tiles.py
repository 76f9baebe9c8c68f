"""Tiles of rows with every edge of theirs, relation by relation: what a block of a GPU owns of a relational product.

The rows of a tile share the matrix of a relation where they have edges of it, so rows of like relations should meet in a tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .counts import added_at, counts_of, prefix_sums
from .relational import RelationPairs, _starts
from .row_parts import ceil_div
from .structure import index_type

# Bits of the key by which rows are ordered: an int64 without its sign.
_KEY_BITS = 62


@dataclass(frozen=True, eq=False)
class RowTiles:
    """Rows in tiles, panels of a tile (one for each relation of its edges, ascending), shares of a panel, edges of a share.

    num_rows: of the structure. slots: rows of a tile at most. shares: of a panel.
    row_ptr: (tiles + 1,) rows of each tile in ``row``. row: every row once, and after ``num_rows`` the parts of long rows.
    panel_ptr: (tiles + 1,). relation: (panels,). present: (panels, slots) uint8, whether the row at a place of the tile has edges
        of the relation.
    share_ptr: (panels * shares + 1,) edges of each share: all those of a row and a relation are in one.
    indices, edge_ids: (edges,) column and number of each edge. place: (edges,) uint8, twice the place of the edge's row in the tile,
        plus one where it is the first of its row and relation.
    long_rows, part_ptr, part: rows that are cut, the offsets of each in ``part``, and the numbers of its parts, its own first.
    """

    num_rows: int
    slots: int
    shares: int
    row_ptr: Tensor
    row: Tensor
    panel_ptr: Tensor
    relation: Tensor
    present: Tensor
    share_ptr: Tensor
    indices: Tensor
    edge_ids: Tensor
    place: Tensor
    long_rows: Tensor
    part_ptr: Tensor
    part: Tensor

    @property
    def tiles(self) -> int:
        return self.row_ptr.numel() - 1

    @property
    def panels(self) -> int:
        return self.relation.numel()


def row_tiles(pairs: RelationPairs, slots: int, shares: int, longest: int, part: int) -> RowTiles:
    """The rows of a structure in tiles of up to ``slots`` rows, 128 at most.

    A row of more than ``longest`` edges is cut into parts of ``part`` edges, in the order of its relations, each a row of its own. A tile
    has no more rows once it has twice the edges that fall to as many rows on average, or ``longest`` if that is more. Depends on
    the structure alone. Waits for the device three times, for the numbers of long rows, of tiles and of panels, and where there are long
    rows twice more, for the numbers of their parts and of what these have of pairs.
    """
    if not 0 < slots <= 128:
        raise ValueError(f"row_tiles: a tile has from 1 to 128 rows, not {slots}")
    rows, relations, device = pairs.num_rows, pairs.num_relations, pairs.row.device
    row, relation, start, length, long_rows, part_ptr, parts = _pieces(pairs, longest, part)
    count = rows + parts.numel() - long_rows.numel()
    degree = added_at(row, length, count)
    order = torch.sort(_signature(row, relation, count, relations), stable=True).indices

    # a row takes one of a tile's slots, or the part of its edges that it has
    limit = max(longest, 2 * slots * pairs.indices.numel() // max(rows, 1))
    cost = torch.clamp(degree.index_select(0, order) * slots, min=limit)
    tile = torch.div(cost.cumsum(0) - cost, limit * slots, rounding_mode="floor")
    first = _starts(tile)
    tiles = first.numel()
    row_ptr = torch.cat([first, first.new_full((1,), count)])
    tile = torch.repeat_interleave(torch.arange(tiles, device=device), row_ptr.diff(), output_size=count)
    slot = torch.arange(count, device=device) - first.index_select(0, tile)
    tile, slot = (torch.empty_like(a).index_copy_(0, order, a) for a in (tile, slot))

    # pieces of a row and a relation, by tile, relation and slot
    key, by = torch.sort((tile.index_select(0, row) * max(relations, 1) + relation) * slots + slot.index_select(0, row))
    slot, panel = key % slots, torch.div(key, slots, rounding_mode="floor")
    start, length = start.index_select(0, by), length.index_select(0, by)
    begin = _starts(panel)
    panels = begin.numel()
    found = panel.index_select(0, begin)
    bounds = torch.cat([begin, begin.new_full((1,), key.numel())])
    panel = torch.repeat_interleave(torch.arange(panels, device=device), bounds.diff(), output_size=key.numel())
    present = torch.zeros(panels * slots, dtype=torch.uint8, device=device)
    present[panel * slots + slot] = 1
    panel_tile = torch.div(found, max(relations, 1), rounding_mode="floor")
    panel_ptr = torch.searchsorted(panel_tile, torch.arange(tiles + 1, device=device))

    # shares of a panel in whole pieces, by the middle of each
    offset = prefix_sums(length)
    edges_before = offset.index_select(0, bounds)
    middle = 2 * (offset[:-1] - edges_before[:-1].index_select(0, panel)) + length
    share = torch.div(middle * shares, 2 * edges_before.diff().index_select(0, panel), rounding_mode="floor").clamp_(max=shares - 1)
    of_share = added_at(panel * shares + share, length, panels * shares)
    share_ptr = prefix_sums(of_share)

    edges = pairs.indices.numel()
    piece = torch.repeat_interleave(torch.arange(key.numel(), device=device), length, output_size=edges)
    within = torch.arange(edges, device=device) - offset.index_select(0, piece)
    at = start.index_select(0, piece) + within
    place = (2 * slot.index_select(0, piece) + (within == 0)).to(torch.uint8)
    dtype = index_type(pairs.row.dtype, count, pairs.num_cols, panels * shares)
    integers = (row_ptr, order, panel_ptr, found % max(relations, 1), share_ptr, pairs.indices.index_select(0, at),
                pairs.edge_ids.index_select(0, at), long_rows, part_ptr, parts)  # fmt: skip
    row_ptr, order, panel_ptr, found, share_ptr, indices, edge_ids, *cut = (a.to(dtype) for a in integers)
    return RowTiles(rows, slots, shares, row_ptr, order, panel_ptr, found, present.view(panels, slots), share_ptr, indices,
                    edge_ids, place, *cut)


def _pieces(pairs: RelationPairs, longest: int, part: int) -> tuple[Tensor, ...]:
    """(row, relation, start, length) of the edges of each pair by row, or of what each part of a long row has of them; then the long rows,
    and offsets and numbers of their parts, as of `RowTiles`."""
    rows, device = pairs.num_rows, pairs.row.device
    row, order = torch.sort(pairs.row.long(), stable=True)
    relation, start = (a.long().index_select(0, order) for a in (pairs.relation, pairs.indptr[:-1]))
    length = pairs.indptr.diff().long().index_select(0, order)
    degree = added_at(row, length, rows)
    long_rows = (degree > longest).nonzero().flatten()
    counts = ceil_div(degree.index_select(0, long_rows), part)
    part_ptr = prefix_sums(counts)
    if long_rows.numel() == 0:
        return row, relation, start, length, long_rows, part_ptr, long_rows
    of_part = torch.repeat_interleave(counts)
    number = torch.arange(of_part.numel(), device=device)
    within = number - part_ptr.index_select(0, of_part)
    # of the k-th long row, k parts are rows' own numbers before, and its own too
    parts = torch.where(within > 0, rows + number - of_part - 1, long_rows.index_select(0, of_part))

    first = torch.zeros(rows, dtype=torch.int64, device=device).index_copy_(0, long_rows, part_ptr[:-1])
    size = torch.full((rows,), pairs.indices.numel() + 1, device=device).index_fill_(0, long_rows, part).index_select(0, row)
    # where the edges of a pair stand among those of its row, and the parts of the row that they are in
    offset = length.cumsum(0) - length - (degree.cumsum(0) - degree).index_select(0, row)
    number = torch.div(offset, size, rounding_mode="floor")
    count = ceil_div(offset + length, size) - number
    pair = torch.repeat_interleave(count)
    number, size, offset, length, start, relation, row, before = (
        a.index_select(0, pair) for a in (number, size, offset, length, start, relation, row, count.cumsum(0) - count))
    number = number + torch.arange(pair.numel(), device=device) - before
    low, high = torch.maximum(offset, number * size), torch.minimum(offset + length, (number + 1) * size)
    row = torch.where(number > 0, parts.index_select(0, first.index_select(0, row) + number), row)
    return row, relation, start + low - offset, high - low, long_rows, part_ptr, parts


def _signature(row: Tensor, relation: Tensor, rows: int, relations: int) -> Tensor:
    """(rows,) a key that orders rows by their relations, the most frequent ones first.

    Rows with the same frequent relations then lie beside each other, as item sets that share a prefix do in the tree of FP-growth
    (Han et al., SIGMOD 2000). row, relation: (pairs,) distinct, by row. The key has as many relations of a row as fit.
    """
    frequency = counts_of(relation, relations)
    rank = torch.empty_like(frequency)
    rank[torch.sort(frequency, descending=True, stable=True).indices] = torch.arange(relations, device=row.device)
    key, _ = torch.sort(row * max(relations, 1) + rank.index_select(0, relation))
    row = torch.div(key, max(relations, 1), rounding_mode="floor")
    digit = key - row * relations + 1  # 0 for no more relations
    first = torch.zeros(rows + 1, dtype=torch.int64, device=row.device)
    first[1:] = counts_of(row, rows).cumsum(0)
    place = torch.arange(row.numel(), device=row.device) - first.index_select(0, row)
    bits = relations.bit_length()
    digits = max(1, _KEY_BITS // max(bits, 1))
    shift = (digits - 1 - place) * bits
    digit = torch.where(shift >= 0, digit << shift.clamp(min=0), 0)
    return added_at(row, digit, rows)


__all__ = ["RowTiles", "row_tiles"]
