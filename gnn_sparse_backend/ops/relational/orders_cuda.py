"""In which order relational products and their gradients go on a GPU: the one that moves fewest bytes."""

from __future__ import annotations

import torch

from ...formats.partitions.relational_tiles import RowTiles, row_tiles
from ...planner.cpu.relational import RelationCounts
from ...planner.cuda import plan as cuda_plan
from ...runtime.precision import on_tensor_cores
from ...runtime.type_names import type_name
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
    """What a product moves in each order that can be had (``planner.cuda_rgms.order_bytes``), counted once for a
    structure.
    """
    full = not on_tensor_cores(dtype)
    side = rel.side(transposed)
    asked = in_features, out_features, type_name(dtype), arch, full, blocks

    def count() -> dict[str, float]:
        counts = _counts(rel, transposed)
        return _counted(side, spec_of(side, *asked), lambda panels: order_bytes(counts, *asked, panels))

    return side.once(("bytes of orders", *asked), count)


def dots_on_gpu(
    rel, transposed: bool, blocks: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str
) -> dict[str, float]:
    """The same for dots at the edges of ``rel``, of products of the side's rows, by rows of the other end
    (``planner.cuda_rgms.dot_bytes``).
    """
    side = rel.side(transposed)
    asked = in_features, out_features, type_name(dtype), arch, not on_tensor_cores(dtype), blocks

    def count() -> dict[str, float]:
        counts = _counts(rel, transposed)
        return _counted(side, spec_of(side, *asked, dots_spec), lambda panels: dot_bytes(counts, *asked, panels))

    return side.once(("bytes of dots", *asked), count)


def sum_by_columns_on_gpu(rel, transposed: bool, in_features: int, out_features: int) -> bool:
    """Whether a sum of outer products on the edges of ``rel`` goes by the pairs of their other end."""
    pairs = [rel.side(end).pairs.count for end in (transposed, not transposed)]
    return sums_by_columns(rel.num_edges, *pairs, in_features, out_features)


def _counts(rel, transposed: bool) -> RelationCounts:
    pairs = (rel.side(end).pairs.count for end in (transposed, not transposed))
    return RelationCounts(rel.side(transposed).sizes[0], rel.num_edges, *pairs)


def _counted(side, spec, moved) -> dict[str, float]:
    """moved(panels), for the panels that the tiles have: they are only made where "rows" wins with the fewest, and kept
    where it then does."""
    fewest = moved(None)
    if order_of(fewest) != "rows":
        return fewest
    key = tiles_key(spec)

    def panels() -> int:
        tiles = made_tiles(side, spec)
        if order_of(moved(tiles.panels)) == "rows":
            side.once(key, lambda: tiles)
        return tiles.panels

    return moved(side.once(("panels of", *key), panels))


def spec_of(
    side, in_features: int, out_features: int, dtype: str, arch: str, full: bool, blocks: int, choose=rows_spec
) -> RgmsRowsSpec | RgmsDotsSpec | None:
    return choose(in_features, out_features, dtype, arch, blocks, rows_of_block(side.sizes[0], blocks), full)


def tiles_key(spec: RgmsRowsSpec | RgmsDotsSpec) -> tuple:
    return "row tiles", spec.rows, spec.shares, cuda_plan.LONG_ROW, cuda_plan.PART


def made_tiles(side, spec: RgmsRowsSpec | RgmsDotsSpec) -> RowTiles:
    return row_tiles(side.pairs, spec.rows, spec.shares, cuda_plan.LONG_ROW, cuda_plan.PART)


__all__ = [
    "bytes_on_gpu",
    "dots_on_gpu",
    "made_tiles",
    "order_on_gpu",
    "spec_of",
    "sum_by_columns_on_gpu",
    "tiles_key",
]
