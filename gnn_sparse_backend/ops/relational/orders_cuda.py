"""In which order relational products and their gradients go on a GPU: the one that moves fewest bytes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...formats.partitions.relational_tiles import RowTiles, row_tiles
from ...planner.cpu.relational import RelationCounts
from ...planner.cuda import plan as cuda_plan
from ...runtime.precision import on_tensor_cores
from ...runtime.type_names import type_name
from ...structures.derived import Derived
from .programs.rgms_row_dots import RgmsDotsSpec
from .programs.rgms_rows import RgmsRowsSpec
from .schedules_cuda import dot_bytes, dots_spec, order_bytes, order_of, rows_of_block, rows_spec, sums_by_columns


def order_on_gpu(
    rel, transposed: bool, blocks: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str
) -> str:
    """The order of a product on the edges of ``rel``, one of those of ``ops.relational.schedules_cuda``."""
    return order_of(bytes_on_gpu(rel, transposed, blocks, in_features, out_features, dtype, arch))


def bytes_on_gpu(
    rel, transposed: bool, blocks: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str
) -> dict[str, float]:
    """What a product moves in each order that can be had (``schedules_cuda.order_bytes``), counted once for a
    structure.
    """
    full = not on_tensor_cores(dtype)
    asked = in_features, out_features, type_name(dtype), arch, full, blocks
    return rel.derived(BytesOfOrders(transposed, asked))


def dots_on_gpu(
    rel, transposed: bool, blocks: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str
) -> dict[str, float]:
    """The same for dots at the edges of ``rel``, of products of the side's rows, by rows of the other end
    (``schedules_cuda.dot_bytes``).
    """
    asked = in_features, out_features, type_name(dtype), arch, not on_tensor_cores(dtype), blocks
    return rel.derived(BytesOfDots(transposed, asked))


def sum_by_columns_on_gpu(rel, transposed: bool, in_features: int, out_features: int) -> bool:
    """Whether a sum of outer products on the edges of ``rel`` goes by the pairs of their other end."""
    pairs = [rel.side(end).pairs.count for end in (transposed, not transposed)]
    return sums_by_columns(rel.num_edges, *pairs, in_features, out_features)


def _counts(rel, transposed: bool) -> RelationCounts:
    pairs = (rel.side(end).pairs.count for end in (transposed, not transposed))
    return RelationCounts(rel.side(transposed).sizes[0], rel.num_edges, *pairs)


@dataclass(frozen=True)
class BytesOfOrders(Derived[dict]):
    """`bytes_on_gpu` of a product. asked: (F_in, F_out, type, architecture, full precision, blocks)."""

    transposed: bool
    asked: tuple

    def compute(self, rel) -> dict[str, float]:
        side, counts = rel.side(self.transposed), _counts(rel, self.transposed)
        return _counted(side, spec_of(side, *self.asked), lambda panels: order_bytes(counts, *self.asked, panels))


@dataclass(frozen=True)
class BytesOfDots(Derived[dict]):
    """`dots_on_gpu` of dots at the edges, likewise."""

    transposed: bool
    asked: tuple

    def compute(self, rel) -> dict[str, float]:
        side, counts = rel.side(self.transposed), _counts(rel, self.transposed)
        found = spec_of(side, *self.asked, dots_spec)
        return _counted(side, found, lambda panels: dot_bytes(counts, *self.asked, panels))


def _counted(side, spec, moved) -> dict[str, float]:
    """moved(panels), for the panels that the tiles have: they are only made where "rows" wins with the fewest, and kept
    where it then does."""
    fewest = moved(None)
    if order_of(fewest) != "rows":
        return fewest
    fact = tiles_of(spec)
    panels = side.facts.get(PanelsOf(fact))
    if panels is None:
        tiles = fact.compute(side)
        panels = side.facts.setdefault(PanelsOf(fact), tiles.panels)
        if order_of(moved(panels)) == "rows":
            side.facts.setdefault(fact, tiles)
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


def spec_of(
    side, in_features: int, out_features: int, dtype: str, arch: str, full: bool, blocks: int, choose=rows_spec
) -> RgmsRowsSpec | RgmsDotsSpec | None:
    return choose(in_features, out_features, dtype, arch, blocks, rows_of_block(side.sizes[0], blocks), full)


def tiles_of(spec: RgmsRowsSpec | RgmsDotsSpec) -> TilesOfRows:
    """The tiles that blocks of such a shape own."""
    return TilesOfRows(spec.rows, spec.shares, cuda_plan.LONG_ROW, cuda_plan.PART)
