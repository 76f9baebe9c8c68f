"""Tiles of rows with every edge of theirs, relation by relation: what a block of a GPU owns of a relational product.

The rows of a tile share the matrix of a relation where they have edges of it, so rows of like relations should meet in a tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import counts
from .counts import added_at, counts_of, prefix_sums
from .relational import RelationPairs
from .row_parts import ceil_div, runs
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
    the structure alone. Waits for the device once, for all sizes; where there are long rows the tiles are laid out again, with
    their parts, and it waits once more.
    """
    if not 0 < slots <= 128:
        raise ValueError(f"row_tiles: a tile has from 1 to 128 rows, not {slots}")
    rows = pairs.num_rows
    # a row takes one of a tile's slots, or the part of its edges that it has
    limit = max(longest, 2 * slots * pairs.indices.numel() // max(rows, 1))
    pieces = _pieces(pairs)
    laid = _lay_out(*pieces, rows, pairs.num_relations, slots, limit)
    degree = laid.degree
    cuts = _Cuts(*pieces, degree, longest, part)
    long, of_long, number, tiles, panels = counts.read(*cuts.sizes, *laid.sizes)
    cut = degree[:0], degree.new_zeros(1), degree[:0]
    if long:
        *pieces, cut = cuts.pieces(long, of_long, number)
        laid = _lay_out(*pieces, rows + of_long - long, pairs.num_relations, slots, limit)
        tiles, panels = counts.read(*laid.sizes)
    return _fill(pairs, laid, tiles, panels, slots, shares, cut)


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where rows and pieces go, before anybody knows into how many tiles and panels.

    order: (rows,) rows, and parts of them, tile by tile. tile: (rows,) of each of these. key: (pieces,) tile, relation and slot of each piece as
    one number, ascending. panel: (pieces,). start, length: (pieces,) of its edges. degree: (rows,) edges of each row, as rows are numbered.
    sizes: the numbers of tiles and of panels.
    """

    order: Tensor
    tile: Tensor
    key: Tensor
    panel: Tensor
    start: Tensor
    length: Tensor
    degree: Tensor
    sizes: tuple[Tensor, Tensor]


def _lay_out(row: Tensor, relation: Tensor, start: Tensor, length: Tensor, count: int, relations: int, slots: int, limit: int) -> _Layout:
    """``count`` rows in tiles; row, relation, start, length: (pieces,), by row, as of `_pieces`."""
    degree = added_at(row, length, count)
    order = torch.sort(_signature(row, relation, count, relations), stable=True).indices
    cost = torch.clamp(degree.index_select(0, order) * slots, min=limit)
    tile, slot, tiles = counts.numbered_runs(torch.div(cost.cumsum(0) - cost, limit * slots, rounding_mode="floor"))
    of_row, in_tile = (torch.empty_like(a).index_copy_(0, order, a) for a in (tile, slot))
    # by tile, relation and slot
    key, by = torch.sort((of_row.index_select(0, row) * max(relations, 1) + relation) * slots + in_tile.index_select(0, row))
    panel, _, panels = counts.numbered_runs(torch.div(key, slots, rounding_mode="floor"))
    return _Layout(order, tile, key, panel, start.index_select(0, by), length.index_select(0, by), degree, (tiles, panels))


def _fill(pairs: RelationPairs, laid: _Layout, tiles: int, panels: int, slots: int, shares: int,
          cut: tuple[Tensor, ...]) -> RowTiles:
    """The tiles as laid out. cut: long rows, and offsets and numbers of their parts."""
    relations, device, key, panel, length = max(pairs.num_relations, 1), laid.key.device, laid.key, laid.panel, laid.length
    row_ptr, bounds = counts.starts_of(laid.tile, tiles), counts.starts_of(panel, panels)
    slot, found = key % slots, torch.div(key.index_select(0, bounds[:-1]), slots, rounding_mode="floor")
    present = torch.zeros(panels * slots, dtype=torch.uint8, device=device).index_fill_(0, panel * slots + slot, 1)
    panel_tile = torch.div(found, relations, rounding_mode="floor")
    panel_ptr = torch.searchsorted(panel_tile, torch.arange(tiles + 1, device=device))

    # shares of a panel in whole pieces, by the middle of each
    offset = prefix_sums(length)
    edges_before = offset.index_select(0, bounds)
    middle = 2 * (offset[:-1] - edges_before[:-1].index_select(0, panel)) + length
    share = torch.div(middle * shares, 2 * edges_before.diff().index_select(0, panel), rounding_mode="floor").clamp_(max=shares - 1)
    share_ptr = prefix_sums(added_at(panel * shares + share, length, panels * shares))

    edges = pairs.indices.numel()
    piece = torch.repeat_interleave(torch.arange(key.numel(), device=device), length, output_size=edges)
    within = torch.arange(edges, device=device) - offset.index_select(0, piece)
    at = laid.start.index_select(0, piece) + within
    place = (2 * slot.index_select(0, piece) + (within == 0)).to(torch.uint8)
    dtype = index_type(pairs.row.dtype, laid.order.numel(), pairs.num_cols, panels * shares)
    integers = (row_ptr, laid.order, panel_ptr, found % relations, share_ptr, pairs.indices.index_select(0, at),
                pairs.edge_ids.index_select(0, at), *cut)  # fmt: skip
    row_ptr, row, panel_ptr, relation, share_ptr, indices, edge_ids, *cut = (a.to(dtype) for a in integers)
    return RowTiles(pairs.num_rows, slots, shares, row_ptr, row, panel_ptr, relation, present.view(panels, slots), share_ptr, indices,
                    edge_ids, place, *cut)


def _pieces(pairs: RelationPairs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(row, relation, start, length) of the edges of each pair, by row; int64."""
    row, order = torch.sort(pairs.row.long(), stable=True)
    return row, *(a.long().index_select(0, order) for a in (pairs.relation, pairs.indptr[:-1], pairs.indptr.diff()))


class _Cuts:
    """Long rows in parts: how many, and then what these have of pairs.

    sizes: the numbers of long rows, of their parts, and of all pieces, what each part has of each pair.
    """

    def __init__(self, row: Tensor, relation: Tensor, start: Tensor, length: Tensor, degree: Tensor, longest: int, part: int):
        self.row, self.relation, self.start, self.length = row, relation, start, length
        self.long = degree > longest
        self.parts_of = torch.where(self.long, ceil_div(degree, part), 0)
        # where the edges of a pair stand among those of its row, and how many parts of the row they are in; a row that is not long is one
        self.size = torch.where(self.long, part, length.sum() + 1).index_select(0, row)
        self.offset = length.cumsum(0) - length - (degree.cumsum(0) - degree).index_select(0, row)
        self.first = torch.div(self.offset, self.size, rounding_mode="floor")
        self.count = ceil_div(self.offset + length, self.size) - self.first
        self.sizes = self.long.sum(), self.parts_of.sum(), self.count.sum()

    def pieces(self, long: int, parts: int, number: int) -> tuple[Tensor, ...]:
        """row, relation, start and length of each piece by row, where rows are parts of long ones, too; then (long rows, offsets and numbers
        of their parts) as of `RowTiles`. Arguments: the sizes."""
        rows = self.long.numel()
        # the k-th long row is where there are k + 1 of them
        long_rows = torch.searchsorted(self.long.cumsum(0), torch.arange(1, long + 1, device=self.long.device))
        part_ptr = prefix_sums(self.parts_of.index_select(0, long_rows))
        of_part, place = runs(part_ptr.diff(), parts)
        # of the k-th long row, k parts are rows' own numbers before, and its own too
        numbers = torch.arange(parts, device=of_part.device)
        numbers = torch.where(place > 0, rows + numbers - of_part - 1, long_rows.index_select(0, of_part))

        before = torch.zeros(rows, dtype=torch.int64, device=of_part.device).index_copy_(0, long_rows, part_ptr[:-1])
        pair, place = runs(self.count, number)
        row, relation, start, length, size, offset, first = (
            a.index_select(0, pair) for a in (self.row, self.relation, self.start, self.length, self.size, self.offset, self.first))
        at = first + place
        low, high = torch.maximum(offset, at * size), torch.minimum(offset + length, (at + 1) * size)
        row = torch.where(at > 0, numbers.index_select(0, before.index_select(0, row) + at), row)
        return row, relation, start + low - offset, high - low, (long_rows, part_ptr, numbers)


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
