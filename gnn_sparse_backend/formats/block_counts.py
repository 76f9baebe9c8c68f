"""How much a matrix would store in blocks, before any are made."""

from __future__ import annotations

import torch

from ..frozen import dataclass
from . import counts
from .partitions.row_parts import ceil_div
from .structure import row_of_position


@dataclass(frozen=True)
class BlockCounts:
    """Counts of what a matrix stores in blocks of one shape, (rows, columns).

    vectors: columns with an edge in a tile of ``rows`` rows, over all tiles (`SrBcrsFormat`). groups: groups of
    ``columns`` vectors of a tile, the last of which may have fewer. blocks: blocks of the grid with an edge
    (`BsrFormat`). coordinates: coordinates with an edge. most: most edges at one coordinate.
    """

    vectors: int
    groups: int
    blocks: int
    coordinates: int
    most: int


def count_blocks(
    indptr: torch.Tensor, indices: torch.Tensor, shape: tuple[int, int], block: tuple[int, int]
) -> BlockCounts | None:
    """The counts of a CSR structure that was checked; None where its coordinates cannot be numbered in 64 bits.

    One sort, by tile, column and row; a GPU is waited for once.
    """
    height, width = block
    tiles, columns, grid = -(-shape[0] // height), shape[1], -(-shape[1] // width)
    if tiles * max(columns, 1) * height > 2**63 - 1:
        return None
    rows = row_of_position(indptr, indices.numel(), torch.int64)
    tile = rows // height
    coordinate, _ = torch.sort((tile * columns + indices) * height + (rows - tile * height))
    vector = coordinate // height
    tile = torch.div(vector, max(columns, 1), rounding_mode="floor")
    in_grid = tile * grid + torch.div(vector - tile * columns, width, rounding_mode="floor")

    _, place, coordinates = counts.numbered_runs(coordinate)
    _, within, vectors = counts.numbered_runs(vector)
    of_tile = counts.added_at(tile, (within == 0).long(), tiles)
    most = torch.cat([place + 1, place.new_zeros(1)]).amax()
    return BlockCounts(
        *counts.read(vectors, ceil_div(of_tile, width).sum(), counts.numbered_runs(in_grid)[2], coordinates, most)
    )
