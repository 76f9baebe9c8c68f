"""The boundary to the kernels of relational products and their gradients on Tensor Cores: forward only, operands already validated."""
from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..compiler.programs.rgms_rows import RgmsRowsSpec
from ..compiler.programs.rgms_tiles import RgmsTilesSpec
from ..formats.relational_tiles import RowTiles, row_tiles
from ..planner import cuda_plan
from ..planner.cuda_rgms import (EDGES_OF_PAIR, ROWS, order_bytes, order_of, panel_rows, rows_kernel, rows_of_block,
                                 rows_spec, sum_tiles_kernel, sums_by_columns, tiles_kernel)
from ..planner.rgms import RelationCounts
from .cuda_outer import OuterSums
from .form import SUM_OF_COLUMNS
from .graph import Graph
from .layout import compact
from .memory import empty
from .message_kernels import run_aggregate
from .precision import on_tensor_cores
from .type_names import type_name

_entries: dict = {}


def order_on_gpu(rel, transposed: bool, blocks: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str) -> str:
    """The order of a product on the edges of ``rel``, one of those of ``planner.cuda_rgms``."""
    return order_of(bytes_on_gpu(rel, transposed, blocks, in_features, out_features, dtype, arch))


def bytes_on_gpu(rel, transposed: bool, blocks: int, in_features: int, out_features: int, dtype: torch.dtype,
                 arch: str) -> dict[str, float]:
    """What a product moves in each order that can be had (``planner.cuda_rgms.order_bytes``), counted once for a structure."""
    full = not on_tensor_cores(dtype)
    side = rel.side(transposed)
    asked = in_features, out_features, type_name(dtype), arch, full, blocks

    def count() -> dict[str, float]:
        counts = RelationCounts(side.sizes[0], rel.num_edges, *(rel.side(end).pairs.count for end in (transposed, not transposed)))
        moved = order_bytes(counts, *asked)
        if order_of(moved) != "rows":  # with however few panels
            return moved
        spec = _spec_of(side, blocks, in_features, out_features, dtype, arch)
        key = _tiles_key(spec)

        def panels() -> int:
            tiles = _row_tiles(side, spec)
            if order_of(order_bytes(counts, *asked, tiles.panels)) == "rows":
                side.once(key, lambda: tiles)
            return tiles.panels

        return order_bytes(counts, *asked, side.once(("panels of", *key), panels))

    return side.once(("bytes of orders", *asked), count)


def _spec_of(side, blocks: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str) -> RgmsRowsSpec | None:
    return rows_spec(in_features, out_features, type_name(dtype), arch, blocks, rows_of_block(side.sizes[0], blocks))


def _tiles_key(spec: RgmsRowsSpec) -> tuple:
    return "row tiles", spec.rows, spec.shares, cuda_plan.LONG_ROW, cuda_plan.PART


def _row_tiles(side, spec: RgmsRowsSpec) -> RowTiles:
    return row_tiles(side.pairs, spec.rows, spec.shares, cuda_plan.LONG_ROW, cuda_plan.PART)


def run_row_products(side, x: Tensor, w: Tensor, weight: Tensor | None, arch: str) -> Tensor:
    """(rows, blocks * F_out): for each row of the side the sum over its edges of weight[e] * x[j(e)] times the matrix of e's relation.

    w: (relations, blocks, F_in, F_out). weight: (E,) float32 in the user's edge order. Parts of long rows are added up afterwards,
    in float32.
    """
    relations, blocks, in_features, out_features = w.shape
    found = _spec_of(side, *w.shape[1:], x.dtype, arch)
    if found is None:
        raise ValueError(f"no block on {arch} owns rows of {side.sizes[0]} for matrices of {in_features} x {out_features} in {x.dtype}")
    tiles = side.once(_tiles_key(found), lambda: _row_tiles(side, found))
    dtype = torch.float32 if tiles.long_rows.numel() else x.dtype
    key = ("rows", in_features, out_features, found.rows, weight is not None, blocks, x.dtype, dtype, tiles.row.dtype, arch)
    entry = _entries.get(key)
    if entry is None:
        spec = replace(found, weighted=weight is not None, out_dtype=type_name(dtype), index_dtype=type_name(tiles.row.dtype))
        entry = _entries[key] = rows_kernel(spec, arch).entry
    owned_ptr = side.once(("owned shares", *_tiles_key(found)), lambda: torch.arange(
        0, tiles.panels * tiles.shares + 1, tiles.shares, dtype=tiles.row.dtype, device=tiles.row.device))
    x, w = compact(x), compact(w.transpose(2, 3))
    out = torch.empty((tiles.row.numel(), blocks, out_features), dtype=dtype, device=x.device)
    at_edges = () if weight is None else (weight.index_select(0, tiles.edge_ids).contiguous(),)
    entry(tiles.tiles, tiles.panels, tiles.panels * tiles.shares, tiles.indices.numel(), x.shape[0], relations, tiles.row.numel(),
          tiles.panel_ptr, owned_ptr, tiles.share_ptr, tiles.indices, tiles.row_ptr[:-1], tiles.row_ptr[1:], tiles.relation,
          tiles.present, tiles.place, *at_edges, tiles.row, x.view(-1, blocks, in_features), w, out)
    out = out.flatten(1)
    if tiles.long_rows.numel() == 0:
        return out
    parts = side.once(("parts of long rows", *_tiles_key(found)), lambda: Graph.from_csr(
        tiles.part_ptr, tiles.part, (tiles.long_rows.numel(), tiles.row.numel()), trusted=True))
    out.index_copy_(0, tiles.long_rows.long(), run_aggregate(SUM_OF_COLUMNS, parts, [out]))
    return out[:tiles.num_rows].to(x.dtype)


def run_pair_products(side, x: Tensor, w: Tensor, weight: Tensor | None, arch: str) -> Tensor:
    """(pairs, blocks * F_out): for each pair of the side the sum over its edges of weight[e] * x[j(e)], times its relation's matrix.

    w: (relations, blocks, F_in, F_out). weight: (E,) float32 in the user's edge order.
    """
    relations, blocks, in_features, out_features = w.shape
    pairs = side.pairs
    rows = panel_rows(in_features, out_features, type_name(x.dtype), arch, blocks)
    _, panels, _, start, stop, relation = side.segments.panels_apart(rows)
    pair_ptr, count = side.once(("pair panels", rows), lambda: (
        torch.cat([start, start.new_full((1,), pairs.count)]).to(pairs.indptr.dtype), (stop - start).to(pairs.indptr.dtype)))
    key = (in_features, out_features, rows, weight is not None, blocks, x.dtype, pairs.indptr.dtype, arch)
    entry = _entries.get(key)
    if entry is None:
        types = type_name(x.dtype), type_name(pairs.indptr.dtype)
        spec = RgmsTilesSpec(in_features, out_features, rows // ROWS, weight is not None, blocks, *types)
        entry = _entries[key] = tiles_kernel(spec, arch).entry
    x, w = compact(x), compact(w.transpose(2, 3))
    out = empty(x, pairs.count, blocks, out_features)
    at_edges = () if weight is None else (weight.index_select(0, pairs.edge_ids).contiguous(),)
    entry(panels, pairs.count, x.shape[0], pairs.indices.numel(), relations, pair_ptr, pairs.indptr, pairs.indices, count,
          relation.to(pairs.indptr.dtype), *at_edges, x, w, out)
    return out.flatten(1)


def sum_by_columns_on_gpu(rel, transposed: bool, in_features: int, out_features: int) -> bool:
    """Whether a sum of outer products on the edges of ``rel`` goes by the pairs of their other end."""
    pairs = [rel.side(end).pairs.count for end in (transposed, not transposed)]
    return sums_by_columns(rel.num_edges, *pairs, in_features, out_features)


def run_pair_sums(side, x: Tensor, g: Tensor, blocks: int, weight: Tensor | None, arch: str) -> Tensor:
    """(relations, blocks, F_in, F_out) float32: for each relation the blocks on the diagonal of the sum over its pairs of the outer
    product of the sum of weight[e] * x[j(e)] over the edges of the pair, and the row of g of the pair. x and g have blocks * F_in
    and blocks * F_out features; weight: (E,) float32, by edge."""
    pairs = side.pairs
    in_features, out_features = x.shape[1] // blocks, g.shape[1] // blocks
    sums = OuterSums(side.segments, in_features, out_features, x.dtype, EDGES_OF_PAIR, blocks)
    tasks = sums.tasks
    pair_ptr = side.once(("pair chunks", *sums.key), lambda: torch.cat([tasks.start, tasks.stop[-1:]]))
    types = type_name(x.dtype), type_name(pairs.indptr.dtype)
    key = ("sum", in_features, out_features, weight is not None, *types, arch, blocks)
    entry = _entries.get(key)
    if entry is None:
        entry = _entries[key] = sum_tiles_kernel(*key[1:]).entry
    x, g = compact(x).view(-1, blocks, in_features), compact(g).view(-1, blocks, out_features)
    out = sums.results(x.device)
    at_edges = () if weight is None else (weight.index_select(0, pairs.edge_ids).contiguous(),)
    entry(tasks.tasks, tasks.chunks, tasks.tasks, pairs.count, x.shape[0], pairs.indices.numel(), g.shape[0], tasks.task_ptr,
          pair_ptr, pairs.indptr, pairs.indices, tasks.slot, tasks.start, tasks.stop, pairs.row, *at_edges, x, g,
          out.view(-1, blocks, in_features, out_features))
    return sums.total(out).view(-1, blocks, in_features, out_features)


__all__ = ["bytes_on_gpu", "order_on_gpu", "run_pair_products", "run_pair_sums", "run_row_products", "sum_by_columns_on_gpu"]
