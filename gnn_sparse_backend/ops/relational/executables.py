"""The boundary to the kernels of RGMS: forward only, no autograd, operands already validated.

All three are derivatives of one form, T = sum over edges e of A[e] * <X[j(e)] W[r(e)], G[i(e)]>: the product by G, the
sum of outer products by W, and the dots by A.

What a caller guarantees: all tensors on one device; x, w and g of one type; w (relations, blocks, F_in, F_out), x and g
with a row for each column and row of the side, of blocks * F_in and blocks * F_out features; a (edges,) in the
accumulation type, in the user's edge order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...deferred import later
from ...planner.cpu.products import BY_RULES
from ...planner.cpu.relational import ORDERS
from ...runtime import devices
from ...runtime.memory import empty
from ...runtime.precision import on_tensor_cores
from ...runtime.type_names import accumulator_of
from ...structures.graph import Graph
from ...structures.relational.graph import RelGraph
from ...structures.relational.sides import Side
from ..grouped.executables import run_grouped_mm, run_grouped_sum
from ..message.calls import run_aggregate, run_edge_map
from ..message.message_op import SUM_OF_COLUMNS, WEIGHTED_SUM_OF_COLUMNS, message_op
from .executables_cpu import Passes, by_plan, dots, outer_sums, product

if TYPE_CHECKING:
    from ..grouped import outer_sums_cuda
    from . import executables_cuda, orders_cuda, schedules_cuda
else:
    outer_sums_cuda = later(__name__, "..grouped.outer_sums_cuda")
    executables_cuda = later(__name__, ".executables_cuda")
    orders_cuda, schedules_cuda = later(__name__, ".orders_cuda"), later(__name__, ".schedules_cuda")

_DOT = message_op("mul(x0, x1)", ("row", "column"))


def run_product(
    rel: RelGraph,
    x: Tensor,
    w: Tensor,
    a: Tensor | None,
    mean: bool,
    transposed: bool,
    order: str | None = None,
    total: Tensor | None = None,
) -> Tensor:
    """``Y[i] = sum over edges e into i of a[e] * x[j(e)] @ w[r(e)]``: (rows, blocks * F_out).

    mean: divide by the number of edges of the relation into the destination. order: one of ``ORDERS``,
    or on a GPU of ``schedules_cuda``; the planner's choice, on the CPU for each relation, if None. total: contiguous,
    in the accumulation type; the product is added to it, and it is the result.
    """
    if rel.num_edges == 0 or w.numel() == 0:
        return empty(x, rel.side(transposed).sizes[0], w.shape[1] * w.shape[3]).zero_() if total is None else total
    if arch := devices.arch_of(x.device):
        found = _product_on_gpu(rel, transposed, order, x, w, _edge_weight(rel, a, mean, accumulator_of(x.dtype)), arch)
        return found if total is None else total.add_(found)
    if order is not None or total is not None:
        return _product_by(rel, transposed, order, x, w, a, mean, total)
    return by_plan(
        Passes(rel, transposed, "product", tuple(w.shape[1:]), x.dtype, a is not None, mean),
        lambda plan: _product_by(rel, transposed, plan.dataflow or None, x, w, a, mean, None, plan),
    )


def _product_by(
    rel: RelGraph, transposed: bool, order: str | None, x: Tensor, w: Tensor, a, mean: bool, total, plan=BY_RULES
) -> Tensor:
    """``run_product`` on a CPU."""
    if order in (None, "gather", "scatter"):
        return product(rel, transposed, order, x, w, a, mean, total, plan)
    return _stored_product(rel, transposed, order, x, w, _edge_weight(rel, a, mean, accumulator_of(x.dtype)))


def _product_on_gpu(
    rel: RelGraph, transposed: bool, order: str | None, x: Tensor, w: Tensor, weight: Tensor | None, arch: str
) -> Tensor:
    side, described = rel.side(transposed), (*w.shape[1:], x.dtype, weight is not None, arch)

    def make():
        of = orders_cuda.shape_of(*w.shape[1:], x.dtype, arch)
        chosen = schedules_cuda.order_of(orders_cuda.bytes_of_orders(rel, transposed, of)) if order is None else order
        return executables_cuda.PRODUCTS[chosen](rel, transposed, of, weight is not None)

    if order is not None and order not in executables_cuda.PRODUCTS:  # none that is taken by itself
        return _stored_product(rel, transposed, order, x, w, weight)
    return side.calls.found((order, on_tensor_cores(x.dtype), *described), make)(x, w, weight)


def _stored_product(rel: RelGraph, transposed: bool, order: str, x: Tensor, w: Tensor, weight: Tensor | None) -> Tensor:
    """The orders that store products of rows, or sums of them, in passes that any device has."""
    side, other = rel.side(transposed), rel.side(not transposed)
    if order == "transform":
        products = _grouped(other, x, w, True)
        return _summed(rel.pairs_of_edges(transposed), products, weight)
    if order == "aggregate":
        return _summed(side.pairs_of_rows, _grouped(side, _summed(side.edges_of_pairs, x, weight), w), None)
    raise ValueError(f"order must be one of {ORDERS}, got {order!r}")


def run_sum(
    rel: RelGraph,
    x: Tensor,
    g: Tensor,
    blocks: int,
    a: Tensor | None,
    mean: bool,
    transposed: bool,
    by: str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """``W[r]`` = the blocks on the diagonal of the sum over edges e of r of a[e] * outer(x[j(e)], g[i(e)]):
    (relations, blocks, F_in, F_out).

    by: whether x is added up over the pairs of "rows" with relations, or g over those of "columns"; the planner's
    choice for each relation if None. A GPU's is its own. dtype: of the result, the type of x if None.
    """
    dtype = x.dtype if dtype is None else dtype
    in_features, out_features = x.shape[1] // blocks, g.shape[1] // blocks
    if rel.num_edges == 0 or in_features == 0 or out_features == 0:
        return x.new_zeros((rel.num_relations, blocks, in_features, out_features), dtype=dtype)
    if arch := devices.arch_of(x.device):
        return _outer_of_sums(rel, transposed, x, g, blocks, a, mean, arch).to(dtype)
    if by is not None:
        return outer_sums(rel, transposed, x, g, blocks, a, mean, by, dtype)
    return by_plan(
        Passes(rel, transposed, "sum", (blocks, in_features, out_features), x.dtype, a is not None, mean),
        lambda plan: outer_sums(rel, transposed, x, g, blocks, a, mean, plan.dataflow or None, dtype, plan),
    )


def run_dot(rel: RelGraph, x: Tensor, w: Tensor, g: Tensor, mean: bool, transposed: bool) -> Tensor:
    """``c[e] = <x[j(e)] @ w[r(e)], g[i(e)]>`` in the user's edge order and the accumulation type: (edges,)."""
    wide = accumulator_of(x.dtype)
    if rel.num_edges == 0 or w.numel() == 0:
        return x.new_zeros(rel.num_edges, dtype=wide)
    if arch := devices.arch_of(x.device):
        found = _dots_on_gpu(rel, transposed, x, w, g, arch)
        return found * rel.mean_scale(wide) if mean else found
    return by_plan(
        Passes(rel, transposed, "dots", tuple(w.shape[1:]), x.dtype, False, mean),
        lambda plan: dots(rel, x, w, g, mean, transposed, plan),
    )


def _dots_on_gpu(rel: RelGraph, transposed: bool, x: Tensor, w: Tensor, g: Tensor, arch: str) -> Tensor:
    """The dots from products of the rows at the end of fewer pairs; the other end is gathered."""
    by, near, far = transposed, g, x
    if rel.side(not transposed).pairs.count < rel.side(transposed).pairs.count:
        by, near, far = not transposed, x, g
    else:
        w = w.transpose(2, 3)
    side = rel.side(by)
    of = orders_cuda.shape_of(*w.shape[1:], x.dtype, arch)
    if schedules_cuda.order_of(orders_cuda.bytes_of_dots(rel, by, of)) == "rows":
        return executables_cuda.run_row_dots(side, near, w, far, arch)
    found = run_edge_map(_DOT, side.edges_of_pairs, [_grouped(side, near, w, True), far], (True,))
    return found.flatten().to(accumulator_of(x.dtype))


def _outer_of_sums(
    rel: RelGraph, transposed: bool, x: Tensor, g: Tensor, blocks: int, a: Tensor | None, mean: bool, arch: str
) -> Tensor:
    """The outer products on a GPU: on Tensor Cores, else from stored sums of x over the edges of all pairs."""
    side = rel.side(transposed)
    weight = _edge_weight(rel, a, mean, accumulator_of(x.dtype))
    if outer_sums_cuda.takes_sum(x.shape[1] // blocks, g.shape[1] // blocks, x.dtype, arch):
        if orders_cuda.sum_by_columns_on_gpu(rel, transposed, x.shape[1], g.shape[1]):
            found = executables_cuda.run_pair_sums(rel.side(not transposed), g, x, blocks, weight, arch)
            return found.transpose(2, 3).to(x.dtype)
        return executables_cuda.run_pair_sums(side, x, g, blocks, weight, arch).to(x.dtype)
    sums = _summed(side.edges_of_pairs, x, weight)
    segments, rows = side.blocks(blocks)
    found = run_grouped_sum(segments, g.reshape(-1, g.shape[1] // blocks), sums.view(-1, x.shape[1] // blocks), rows)
    return found.unflatten(0, (-1, blocks)).transpose(2, 3)


def _grouped(side: Side, x: Tensor, w: Tensor, of_rows: bool = False) -> Tensor:
    """The rows of x, one for each pair of the side, or where ``of_rows`` those of the pairs' nodes, times the matrix of
    the pair's
    relation: (pairs, blocks * F_out). A block on the diagonal is as a relation of its own."""
    _, blocks, in_features, out_features = w.shape
    segments, rows = side.blocks(blocks)
    if blocks > 1:
        x = x.reshape(-1, in_features)
    out = run_grouped_mm(segments, x, w.flatten(0, 1), rows if of_rows else None)
    return out.view(-1, blocks * out_features) if blocks > 1 else out


def _summed(graph: Graph, x: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return run_aggregate(SUM_OF_COLUMNS, graph, [x])
    return run_aggregate(WEIGHTED_SUM_OF_COLUMNS, graph, [x, weight.unsqueeze(1)])


def _edge_weight(rel: RelGraph, a: Tensor | None, mean: bool, dtype: torch.dtype) -> Tensor | None:
    """What stands before each edge, in the user's order; None for ones."""
    if not mean:
        return a
    scale = rel.mean_scale(dtype)
    return scale if a is None else scale * a
