"""The boundary to the kernels of relational products and their gradients on Tensor Cores: forward only, operands already validated."""
from __future__ import annotations

import torch
from torch import Tensor

from ..compiler.programs.rgms_tiles import RgmsTilesSpec
from ..planner.cuda_rgms import (EDGES_OF_PAIR, ROWS, order_of, panel_rows, sum_tiles_kernel, sums_by_columns,
                                 tiles_kernel)
from .cuda_outer import OuterSums
from .layout import compact
from .memory import empty
from .precision import on_tensor_cores
from .type_names import type_name

_entries: dict = {}


def order_on_gpu(rel, transposed: bool, blocks: int, in_features: int, out_features: int, dtype: torch.dtype, arch: str) -> str:
    """The order of a product on the edges of ``rel``, ``tiles`` or ``transform``."""
    full = not on_tensor_cores(dtype)
    pairs = [rel.side(end).pairs.count for end in (transposed, not transposed)]
    return order_of(rel.num_edges, *pairs, in_features, out_features, type_name(dtype), arch, full, blocks)


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


__all__ = ["order_on_gpu", "run_pair_products", "run_pair_sums", "sum_by_columns_on_gpu"]
