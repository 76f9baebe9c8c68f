"""The boundary to the kernels of RGMS: forward only, no autograd, operands already validated.

All three are derivatives of one form, T = sum over edges e of A[e] * <X[j(e)] W[r(e)], G[i(e)]>: the product by G, the
sum of outer products by W, and the dots by A.

What a caller guarantees: all tensors on one device; x, w and g of one type; w (relations, blocks, F_in, F_out), x and g with
a row for each column and row of the side, of blocks * F_in and blocks * F_out features; a (edges,) in the accumulation
type, in the user's edge order.
"""
from __future__ import annotations

import torch
from torch import Tensor

from ..compiler.programs.rgms import RgmsSpec
from ..planner.rgms import (RelationCounts, column_tile_of, cost_per_pair, order_of, panel_pairs, part_limit, rgms_kernel,
                            row_task_count, sum_by_columns)
from . import devices
from .cuda_rgms import order_on_gpu, run_pair_products
from .form import form
from .graph import Graph
from .grouped_kernels import run_grouped_mm, run_grouped_sum
from .kernels import type_name
from .layout import kernel_ready
from .memory import empty
from .message_kernels import run_aggregate, run_edge_map
from .rel_graph import RelGraph, Side

_COPY = form("x0", ("column",), "sum")
_WEIGHTED = form("mul(x1, x0)", ("column", "edge"), "sum")
_DOT = form("mul(x0, x1)", ("row", "column"))
_entries: dict = {}


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """The accumulation type."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def run_product(rel: RelGraph, x: Tensor, w: Tensor, a: Tensor | None, mean: bool, transposed: bool,
                order: str | None = None) -> Tensor:
    """``Y[i] = sum over edges e into i of a[e] * x[j(e)] @ w[r(e)]``: (rows, blocks * F_out).

    mean: divide by the number of edges of the relation into the destination. order: of ``planner.rgms.ORDERS``, its choice
    if None.
    """
    side = rel.side(transposed)
    rows = side.sizes[0]
    relations, blocks, in_features, out_features = w.shape
    if rel.num_edges == 0 or w.numel() == 0:
        return x.new_zeros((rows, blocks * out_features))
    counts = _counts(rel, transposed)
    if order is None:
        arch = devices.arch_of(x.device)
        order = order_on_gpu(rel, transposed, x, w, arch) if arch else order_of(counts, in_features, out_features, blocks, x.itemsize)
    if order == "fused":
        return _fused(rel, side, counts, x, w, a, mean)
    weight = _edge_weight(rel, a, mean, wide_type(x.dtype))
    if order == "tiles":
        return _summed(side.pairs_of_rows, run_pair_products(side, x, w[:, 0], weight, devices.arch_of(x.device)), None)
    if order == "transform":
        other = rel.side(not transposed)
        products = _grouped(other, x, w, other.pairs.row)
        graph = side.once("pairs_of_edges", lambda: Graph.from_coo(
            side.arrays[0], other.pair_of_edge, (rows, other.pairs.count)))
        return _summed(graph, products, weight)
    if order == "aggregate":
        return _summed(side.pairs_of_rows, _grouped(side, _summed(side.edges_of_pairs, x, weight), w), None)
    raise ValueError(f"order must be fused, transform or aggregate, got {order!r}")


def run_sum(rel: RelGraph, x: Tensor, g: Tensor, blocks: int, a: Tensor | None, mean: bool, transposed: bool) -> Tensor:
    """``W[r]`` = the blocks on the diagonal of the sum over edges e of r of a[e] * outer(x[j(e)], g[i(e)]):
    (relations, blocks, F_in, F_out)."""
    in_features, out_features = x.shape[1] // blocks, g.shape[1] // blocks
    if rel.num_edges == 0 or in_features == 0 or out_features == 0:
        return x.new_zeros((rel.num_relations, blocks, in_features, out_features))
    if devices.arch_of(x.device):
        return _outer_of_sums(rel, rel.side(transposed), x, g, blocks, a, mean)
    counts = _counts(rel, transposed)
    if sum_by_columns(counts, x.shape[1], g.shape[1]):
        return _outer(rel, rel.side(not transposed), counts, g, x, blocks, a, mean).transpose(2, 3)
    return _outer(rel, rel.side(transposed), counts, x, g, blocks, a, mean)


def run_dot(rel: RelGraph, x: Tensor, w: Tensor, g: Tensor, mean: bool, transposed: bool) -> Tensor:
    """``c[e] = <x[j(e)] @ w[r(e)], g[i(e)]>`` in the user's edge order and the accumulation type: (edges,)."""
    wide = wide_type(x.dtype)
    if rel.num_edges == 0 or w.numel() == 0:
        return x.new_zeros(rel.num_edges, dtype=wide)
    counts = _counts(rel, transposed)
    side, other = rel.side(transposed), rel.side(not transposed)
    # the products of the fewer pairs; the other end is gathered
    if counts.row_pairs <= counts.column_pairs:
        found = run_edge_map(_DOT, side.edges_of_pairs, [_grouped(side, g, w.transpose(2, 3), side.pairs.row), x], (True,))
    else:
        found = run_edge_map(_DOT, other.edges_of_pairs, [_grouped(other, x, w, other.pairs.row), g], (True,))
    found = found.flatten().to(wide)
    return found * rel.mean_scale(wide) if mean else found


def _counts(rel: RelGraph, transposed: bool) -> RelationCounts:
    counts = rel.counts
    if not transposed:
        return counts
    return RelationCounts(rel.shape[1], counts.edges, counts.column_pairs, counts.row_pairs)


def _fused(rel: RelGraph, side: Side, counts: RelationCounts, x: Tensor, w: Tensor, a: Tensor | None, mean: bool) -> Tensor:
    relations, blocks, in_features, out_features = w.shape
    wide = wide_type(x.dtype)
    most = panel_pairs(blocks * in_features, wide.itemsize)
    threads = torch.get_num_threads()
    tasks = row_task_count(counts, relations, blocks * in_features, blocks * out_features, threads)
    cost = cost_per_pair(in_features, out_features, x.itemsize)
    row_ptr, panels = side.row_tasks(tasks, most, cost)
    weight = _position_weight(rel, side, ("rows", tasks, most), panels.edge_ids, a, mean, wide)
    x, w = kernel_ready(x), kernel_ready(_tiled(w, column_tile_of(out_features, type_name(x.dtype))).contiguous())
    out = empty(x if x.dtype is wide else x.new_empty(0, dtype=wide), side.sizes[0], blocks * out_features)
    entry = _entry("product", in_features, out_features, blocks, most, weight is not None, x.dtype, panels.row.dtype,
                   tasks > 1 and threads > 1)
    entry(tasks, panels.size.numel(), panels.row.numel(), x.shape[0], rel.num_edges, relations, side.sizes[0],
          panels.panel_ptr, panels.pair_ptr, panels.indptr, panels.indices, row_ptr, panels.size, panels.row,
          *([] if weight is None else [weight]), x, row_ptr[:-1], panels.relation, w, out)
    return out.to(x.dtype)


def _outer(rel: RelGraph, side: Side, counts: RelationCounts, x: Tensor, g: Tensor, blocks: int, a: Tensor | None,
           mean: bool) -> Tensor:
    """The sum with x added up over the pairs of ``side``: the rows of g."""
    in_features, out_features = x.shape[1] // blocks, g.shape[1] // blocks
    wide = wide_type(x.dtype)
    # of each pair two rows are kept
    most = panel_pairs((x.shape[1] + g.shape[1]) // 2, wide.itemsize)
    cost = cost_per_pair(in_features, out_features, x.itemsize)
    limit = part_limit(counts, side.pairs.count, cost)
    relation, panels = side.relation_tasks(limit, most, cost)
    key = ("relations", limit, most)
    slot, more = side.once(("slots", *key), lambda: _slots(relation, rel.num_relations))
    weight = _position_weight(rel, side, key, panels.edge_ids, a, mean, wide)
    x, g = kernel_ready(x), kernel_ready(g)
    tasks, slots = relation.numel(), rel.num_relations + more.numel()
    out = x.new_empty((slots, blocks, in_features, out_features), dtype=wide)
    if tasks - more.numel() < rel.num_relations:
        out[:rel.num_relations].zero_()  # relations without edges
    parallel = tasks > 1 and torch.get_num_threads() > 1
    entry = _entry("sum", in_features, out_features, blocks, most, weight is not None, x.dtype, panels.row.dtype, parallel)
    entry(tasks, panels.size.numel(), panels.row.numel(), x.shape[0], rel.num_edges, slots, g.shape[0],
          panels.panel_ptr, panels.pair_ptr, panels.indptr, panels.indices, panels.size, panels.row,
          *([] if weight is None else [weight]), x, slot, g, out)
    if more.numel():
        out[:rel.num_relations].index_add_(0, more, out[rel.num_relations:])
        out = out[:rel.num_relations].clone()
    return out.to(x.dtype)


def _outer_of_sums(rel: RelGraph, side: Side, x: Tensor, g: Tensor, blocks: int, a: Tensor | None, mean: bool) -> Tensor:
    """The same from sums of x over the edges of all pairs, which are stored."""
    sums = _summed(side.edges_of_pairs, x, _edge_weight(rel, a, mean, wide_type(x.dtype)))
    parts = [run_grouped_sum(side.segments, of_g, of_x.contiguous(), side.pairs.row)
             for of_x, of_g in zip(sums.chunk(blocks, 1), g.chunk(blocks, 1))]
    return torch.stack(parts, 1).transpose(2, 3)


def _slots(relation: Tensor, relations: int) -> tuple[Tensor, Tensor]:
    """(place of each task's matrix, relations of those that come after the first of a relation)."""
    again = torch.zeros(relation.numel(), dtype=torch.bool, device=relation.device)
    again[1:] = relation[1:] == relation[:-1]
    later = relations + again.cumsum(0) - 1
    return torch.where(again, later, relation.long()).to(relation.dtype), relation[again].long()


def _tiled(w: Tensor, tile: int) -> Tensor:
    """(relations, blocks, F_in * F_out): the columns of each matrix in tiles, rows of one tile after the other."""
    whole = w.shape[3] // tile * tile
    if w.shape[3] <= tile:
        return w.flatten(2)
    tiles = w[..., :whole].unflatten(3, (-1, tile)).transpose(2, 3).flatten(2)
    return tiles if whole == w.shape[3] else torch.cat([tiles, w[..., whole:].flatten(2)], 2)


def _grouped(side: Side, x: Tensor, w: Tensor, at: Tensor | None = None) -> Tensor:
    """The rows of x, or those that ``at`` names, one for each pair of the side, times the matrix of its relation."""
    _, blocks, in_features, _ = w.shape
    parts = [run_grouped_mm(side.segments, x[:, d * in_features:(d + 1) * in_features], w[:, d], at) for d in range(blocks)]
    return parts[0] if blocks == 1 else torch.cat(parts, 1)


def _summed(graph: Graph, x: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return run_aggregate(_COPY, graph, [x])
    return run_aggregate(_WEIGHTED, graph, [x, weight.unsqueeze(1)])


def _edge_weight(rel: RelGraph, a: Tensor | None, mean: bool, dtype: torch.dtype) -> Tensor | None:
    """What stands before each edge, in the user's order; None for ones."""
    if not mean:
        return a
    scale = rel.mean_scale(dtype)
    return scale if a is None else scale * a


def _position_weight(rel: RelGraph, side: Side, key, edge_ids: Tensor, a: Tensor | None, mean: bool, dtype) -> Tensor | None:
    """The same at each position of a structure that ``key`` names on its side."""
    scale = None
    if mean:
        scale = side.once(("scale", dtype, *key), lambda: rel.mean_scale(dtype).index_select(0, edge_ids))
    if a is None:
        return scale
    a = a.index_select(0, edge_ids)
    return a if scale is None else a.mul_(scale)


def _entry(make: str, in_features: int, out_features: int, blocks: int, panel: int, weighted: bool, dtype, index, parallel):
    key = (make, in_features, out_features, blocks, panel, weighted, dtype, index, parallel)
    entry = _entries.get(key)
    if entry is None:
        spec = RgmsSpec(in_features, out_features, blocks, panel, 0, 0, 0, weighted, type_name(dtype), type_name(index))
        entry = _entries[key] = rgms_kernel(make, spec, parallel).entry
    return entry
