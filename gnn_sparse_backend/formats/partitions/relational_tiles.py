"""Tiles of rows with every edge of theirs, relation by relation: what a block of a GPU owns of a relational product.

The rows of a tile share the matrix of a relation where they have edges of it, so rows of like relations should meet in
a tile.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...frozen import dataclass
from .. import counts
from ..counts import added_at, counts_of, numbers_of, prefix_sums
from ..structure import index_type
from .relational import RelationPairs
from .row_parts import ceil_div, runs

# Bits of the key by which rows are ordered: an int64 without its sign.
_KEY_BITS = 62
_LAST = torch.iinfo(torch.int64).max


@dataclass(frozen=True, eq=False)
class RowTiles:
    """Rows in tiles, panels of a tile (one for each relation of its edges, ascending), shares of a panel, edges of a
    share.

    num_rows: of the structure. slots: rows of a tile at most. shares: of a panel.
    row_ptr: (tiles + 1,) rows of each tile in ``row``. row: every row once, and after ``num_rows`` the parts of long
    rows.
    panel_ptr: (tiles + 1,). relation: (panels,). present: (panels, slots) uint8, whether the row at a place of the tile
        has edges of the relation.
    share_ptr: (panels * shares + 1,) edges of each share: all those of a row and a relation are in one.
    indices, edge_ids: (edges,) column and number of each edge. place: (edges,) uint8, twice the place of the edge's row
        in the tile, plus one where it is the first of its row and relation.
    long_rows, part_ptr, part: rows that are cut, the offsets of each in ``part``, and the numbers of its parts, its own
    first.
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

    A row of more than ``longest`` edges is cut into parts of ``part`` edges, in the order of its relations, each a row
    of its own. A tile has no more rows once it has twice the edges that fall to as many rows on average, or ``longest``
    if that is more. Depends on the structure alone. Waits for the device once, for all sizes: until then there is room
    for as many parts as there may be.
    """
    if not 0 < slots <= 128:
        raise ValueError(f"row_tiles: a tile has from 1 to 128 rows, not {slots}")
    rows, edges = pairs.num_rows, pairs.indices.numel()
    pieces = _Pieces(pairs, longest, part, edges // part if edges > longest else 0)
    # a row takes one of a tile's slots, or the part of its edges that it has
    laid = _lay_out(pieces, pairs.num_relations, slots, max(longest, 2 * slots * edges // max(rows, 1)))
    long, parts, number, tiles, panels = counts.read(*pieces.sizes, *laid.sizes)
    return _fill(
        pairs, laid.cut(rows + parts - long, number), tiles, panels, slots, shares, pieces.long_rows(long, parts)
    )


@dataclass(frozen=True, eq=False)
class _Layout:
    """Where rows and pieces go, before anybody knows into how many tiles and panels. Rows and pieces that there are not
    come last.

    order: (rows,) rows, and parts of them, tile by tile. tile: (rows,) of each of these. key: (pieces,) tile, relation
    and slot of each piece as one number, ascending. panel: (pieces,). start, length: (pieces,) of its edges. sizes: the
    numbers of tiles and of panels.
    """

    order: Tensor
    tile: Tensor
    key: Tensor
    panel: Tensor
    start: Tensor
    length: Tensor
    sizes: tuple[Tensor, Tensor]

    def cut(self, rows: int, pieces: int) -> _Layout:
        """Return the layout of the first ``rows`` rows and ``pieces`` pieces, which are those that there are."""
        of_rows, of_pieces = (self.order, self.tile), (self.key, self.panel, self.start, self.length)
        return _Layout(*(a[:rows] for a in of_rows), *(a[:pieces] for a in of_pieces), self.sizes)


def _lay_out(pieces: _Pieces, relations: int, slots: int, limit: int) -> _Layout:
    """All rows in tiles."""
    row, relation, start, length, real = pieces.row, pieces.relation, pieces.start, pieces.length, pieces.real
    there = torch.arange(pieces.most_rows, device=row.device) < pieces.rows
    degree = added_at(row, length, pieces.most_rows)
    signature = _signature(row, relation, real, pieces.most_rows, relations)
    order = torch.sort(torch.where(there, signature, _LAST), stable=True).indices
    cost = torch.clamp(degree.index_select(0, order) * slots, min=limit)
    tile, slot, _ = counts.numbered_runs(torch.div(cost.cumsum(0) - cost, limit * slots, rounding_mode="floor"))
    of_row, in_tile = (torch.empty_like(a).index_copy_(0, order, a) for a in (tile, slot))
    # by tile, relation and slot
    key = (of_row.index_select(0, row) * max(relations, 1) + relation) * slots + in_tile.index_select(0, row)
    key, by = torch.sort(torch.where(real, key, _LAST))
    panel, _, _ = counts.numbered_runs(key // slots)
    sizes = _last(tile, there.index_select(0, order)), _last(panel, real.index_select(0, by))
    return _Layout(order, tile, key, panel, start.index_select(0, by), length.index_select(0, by), sizes)


def _last(numbers: Tensor, real: Tensor) -> Tensor:
    """How many of the numbers from 0 on the real entries have."""
    return torch.cat([numbers.new_zeros(1), torch.where(real, numbers + 1, 0)]).amax()


def _fill(
    pairs: RelationPairs, laid: _Layout, tiles: int, panels: int, slots: int, shares: int, cut: tuple[Tensor, ...]
) -> RowTiles:
    """The tiles as laid out. cut: long rows, and offsets and numbers of their parts."""
    relations, device = max(pairs.num_relations, 1), laid.key.device
    key, panel, length = laid.key, laid.panel, laid.length
    row_ptr, bounds = counts.starts_of(laid.tile, tiles), counts.starts_of(panel, panels)
    slot, found = key % slots, torch.div(key.index_select(0, bounds[:-1]), slots, rounding_mode="floor")
    present = torch.zeros(panels * slots, dtype=torch.uint8, device=device).index_fill_(0, panel * slots + slot, 1)
    panel_tile = found // relations
    panel_ptr = torch.searchsorted(panel_tile, torch.arange(tiles + 1, device=device))

    # shares of a panel in whole pieces, by the middle of each
    offset = prefix_sums(length)
    edges_before = offset.index_select(0, bounds)
    middle = 2 * (offset[:-1] - edges_before[:-1].index_select(0, panel)) + length
    share = middle * shares // (2 * edges_before.diff().index_select(0, panel))
    share = share.clamp_(max=shares - 1)
    share_ptr = prefix_sums(added_at(panel * shares + share, length, panels * shares))

    edges = pairs.indices.numel()
    piece = torch.repeat_interleave(torch.arange(key.numel(), device=device), length, output_size=edges)
    within = torch.arange(edges, device=device) - offset.index_select(0, piece)
    at = laid.start.index_select(0, piece) + within
    place = (2 * slot.index_select(0, piece) + (within == 0)).to(torch.uint8)
    dtype = index_type(pairs.row.dtype, laid.order.numel(), pairs.num_cols, panels * shares)
    row_ptr, row, panel_ptr, relation = (a.to(dtype) for a in (row_ptr, laid.order, panel_ptr, found % relations))
    indices, edge_ids = pairs.indices.index_select(0, at), pairs.edge_ids.index_select(0, at)
    share_ptr, indices, edge_ids, *cut = (a.to(dtype) for a in (share_ptr, indices, edge_ids, *cut))
    sizes, present = (pairs.num_rows, slots, shares), present.view(panels, slots)
    of_shares = share_ptr, indices, edge_ids, place
    return RowTiles(*sizes, row_ptr, row, panel_ptr, relation, present, *of_shares, *cut)


class _Pieces:
    """What rows, and the parts that long ones are cut into, have of pairs, in room for ``more`` parts, which is all
    that there may be.

    row, relation, start, length: (pieces,) the edges of each; a row's parts but for its first have numbers of their
    own, from those of rows on.
    real: (pieces,) whether there is such a piece. most_rows, rows: how many rows there are room for, and are. sizes:
    the numbers of long rows, of all their parts, and of pieces.
    """

    def __init__(self, pairs: RelationPairs, longest: int, part: int, more: int):
        row, order = torch.sort(pairs.row.long(), stable=True)
        relation, start, length = (
            a.long().index_select(0, order) for a in (pairs.relation, pairs.indptr[:-1], pairs.indptr.diff())
        )
        real = torch.ones_like(row, dtype=torch.bool)
        degree = added_at(row, length, pairs.num_rows)
        self.long = degree > longest
        self.parts = torch.where(self.long, ceil_div(degree, part), 1)
        self.num_rows, self.most_rows, self.rows = pairs.num_rows, pairs.num_rows + more, self.parts.sum()
        if more:
            # where the edges of a pair stand among those of its row, and how many parts of the row they are in; a row
            # that is not long is one
            size = torch.where(self.long, part, length.sum() + 1).index_select(0, row)
            offset = length.cumsum(0) - length - (degree.cumsum(0) - degree).index_select(0, row)
            first = offset // size
            count = ceil_div(offset + length, size) - first
            pair, place = runs(count, most=row.numel() + more)
            row, relation, start, length, size, offset, first, count = (
                a.index_select(0, pair) for a in (row, relation, start, length, size, offset, first, count)
            )
            real, at = place < count, first + place
            low, high = torch.maximum(offset, at * size), torch.minimum(offset + length, (at + 1) * size)
            start, length = start + low - offset, torch.where(real, high - low, 0)
            # what a row's second part would be called, less two
            before = self.num_rows + (self.parts - 1).cumsum(0) - self.parts
            row = torch.where(real & (at > 0), before.index_select(0, row) + at, row)
        self.row, self.relation, self.start, self.length, self.real = row, relation, start, length, real
        self.sizes = self.long.sum(), torch.where(self.long, self.parts, 0).sum(), real.sum()

    def long_rows(self, long: int, parts: int) -> tuple[Tensor, Tensor, Tensor]:
        """(long rows, offsets and numbers of their parts) as of `RowTiles`. Arguments: how many there are."""
        rows = numbers_of(self.long, long)
        ptr = prefix_sums(self.parts.index_select(0, rows))
        of_part, place = runs(ptr.diff(), parts)
        # first parts have their rows' own numbers: k of them before the k-th long row, and its own
        numbers = self.num_rows + torch.arange(parts, device=rows.device) - of_part - 1
        return rows, ptr, torch.where(place > 0, numbers, rows.index_select(0, of_part))


def _signature(row: Tensor, relation: Tensor, real: Tensor, rows: int, relations: int) -> Tensor:
    """(rows,) a key that orders rows by their relations, the most frequent ones first.

    Rows with the same frequent relations then lie beside each other, as item sets that share a prefix do in the tree of
    FP-growth (Han et al., SIGMOD 2000). row, relation: (pieces,) distinct, of those that are ``real``. The key has as
    many relations of a row as fit.
    """
    frequency = added_at(relation, real.long(), relations)
    rank = torch.empty_like(frequency)
    rank[torch.sort(frequency, descending=True, stable=True).indices] = torch.arange(relations, device=row.device)
    # others are of a row beyond all
    width = max(relations, 1)
    key, _ = torch.sort(torch.where(real, row * width + rank.index_select(0, relation), rows * width))
    row = key // width
    digit = key - row * relations + 1  # 0 for no more relations
    first = torch.zeros(rows + 2, dtype=torch.int64, device=row.device)
    first[1:] = counts_of(row, rows + 1).cumsum(0)
    place = torch.arange(row.numel(), device=row.device) - first.index_select(0, row)
    bits = relations.bit_length()
    digits = max(1, _KEY_BITS // max(bits, 1))
    shift = (digits - 1 - place) * bits
    digit = torch.where(shift >= 0, digit << shift.clamp(min=0), 0)
    return added_at(row, digit, rows + 1)[:rows]
