"""In which order relational products and their gradients go on a GPU: the one that moves fewest bytes."""

from __future__ import annotations

import torch

from ...formats.partitions.relational_tiles import RowTiles, row_tiles
from ...frozen import dataclass
from ...planner.cpu.relational import RelationCounts
from ...planner.cuda import rows
from ...runtime.precision import on_tensor_cores
from ...runtime.type_names import type_name
from ...structures.derived import Derived, fact
from .programs.rgms_row_dots import RgmsDotsSpec
from .programs.rgms_rows import RgmsRowsSpec
from .schedules_cuda import dot_bytes, order_bytes, order_of, sums_by_columns
from .schedules_cuda_rows import ProductShape, dots_spec, rows_of_block, rows_spec


def shape_of(blocks: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str) -> ProductShape:
    """Shape of a product in the precision that PyTorch asks for now."""
    return ProductShape(in_features, out_features, type_name(dtype), arch, blocks, not on_tensor_cores(dtype))


def sum_by_columns_on_gpu(rel, transposed: bool, in_features: int, out_features: int) -> bool:
    """Whether a sum of outer products on the edges of ``rel`` goes by the pairs of their other end."""
    pairs = [rel.side(end).pairs.count for end in (transposed, not transposed)]
    return sums_by_columns(rel.num_edges, *pairs, in_features, out_features)


def _counts(rel, transposed: bool) -> RelationCounts:
    pairs = (rel.side(end).pairs.count for end in (transposed, not transposed))
    return RelationCounts(rel.side(transposed).sizes[0], rel.num_edges, *pairs)


@fact
def bytes_of_orders(rel, transposed: bool, of: ProductShape) -> dict[str, float]:
    """What a product on the edges of ``rel`` moves in each order that can be had (``schedules_cuda.order_bytes``)."""
    side, counts = rel.side(transposed), _counts(rel, transposed)
    return _counted(side, spec_of(side, of), lambda panels: order_bytes(counts, of, panels))


@fact
def bytes_of_dots(rel, transposed: bool, of: ProductShape) -> dict[str, float]:
    """What dots at the edges move in each order that can be had, of products of the side's rows by rows of the other
    end (``schedules_cuda.dot_bytes``).
    """
    side, counts = rel.side(transposed), _counts(rel, transposed)
    return _counted(side, spec_of(side, of, dots_spec), lambda panels: dot_bytes(counts, of, panels))


def _counted(side, spec, moved) -> dict[str, float]:
    """moved(panels), for the panels that the tiles have: they are only made where "rows" wins with the fewest, and kept
    where it then does."""
    fewest = moved(None)
    if order_of(fewest) != "rows":
        return fewest
    planned = tiles_of(spec)
    panels = side.facts.get(PanelsOf(planned))
    if panels is None:
        tiles = planned.compute(side)
        panels = side.facts.setdefault(PanelsOf(planned), tiles.panels)
        if order_of(moved(panels)) == "rows":
            side.facts.setdefault(planned, tiles)
    return moved(panels)


@dataclass(frozen=True)
class TilesOfRows(Derived[RowTiles]):
    """Tiles of the rows of a side, with every edge of theirs: what blocks of a GPU own (`row_tiles`)."""

    rows: int
    shares: int
    long_row: int
    part: int

    def compute(self, side) -> RowTiles:
        return row_tiles(side.pairs, self.rows, self.shares, self.long_row, self.part)


@dataclass(frozen=True)
class PanelsOf(Derived[int]):
    """How many panels such tiles have, whether they are kept or not."""

    tiles: TilesOfRows

    def compute(self, side) -> int:
        return self.tiles.compute(side).panels


def spec_of(side, of: ProductShape, choose=rows_spec) -> RgmsRowsSpec | RgmsDotsSpec | None:
    """The shape of a block that owns rows of a side."""
    return choose(of, rows_of_block(side.sizes[0], of.blocks))


def tiles_of(spec: RgmsRowsSpec | RgmsDotsSpec) -> TilesOfRows:
    """The tiles that blocks of such a shape own."""
    return TilesOfRows(spec.rows, spec.shares, rows.LONG_ROW, rows.PART)
