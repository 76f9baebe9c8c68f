"""The boundary to the kernels of RGMS on the CPU: what ``executables`` asks for where there are edges and features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ...compiler.cache.bounded import shared
from ...compiler.own_schedules import in_force
from ...formats.partitions.relational import Panels
from ...planner.cpu.products import BY_RULES, RelationalPlan, relational_plans
from ...planner.cpu.relational import (
    cost_per_pair,
    is_near_limit,
    is_small,
    is_tiled,
    panel_pairs,
    part_limit,
    predicted_costs,
    sum_by_columns,
)
from ...planner.database import database
from ...planner.decisions import Decision, listeners, measured_plan
from ...planner.plan import Plan
from ...planner.problem import Problem
from ...runtime.layout import kernel_ready
from ...runtime.memory import empty
from ...runtime.threads import planned_threads
from ...runtime.type_names import accumulator_of, type_name
from ...structures.derived import fact
from ...structures.facts import content_hash
from ...structures.relational.graph import RelGraph
from ...structures.relational.sides import RelationSplit, RelationTasks
from ..core.executable import Launch, in_threads
from ..grouped.executables import in_bf16_pairs
from ..grouped.schedules_cpu import takes_bf16_pairs
from .panels_cpu import always, counts_of, never, position_weight, slots, tasks_of_product
from .programs.rgms import RgmsSpec
from .schedules_cpu import column_tile_of, rgms_kernel

_SEARCHED = {
    "product": relational_plans(("gather", "scatter"), ("transform", "aggregate")),
    "sum": relational_plans(("rows", "columns")),
    "dots": relational_plans(("rows", "columns")),
}
_LANES = 8

_entries = shared("kernels of relational products")
_at_hand = shared("relational kernels made together")


class Passes(NamedTuple):
    """A product of relations, a sum of outer products, or dots, as far as its plan depends on it.

    widths: (blocks, features of x, features of the result) of the matrices.
    """

    rel: RelGraph
    transposed: bool
    what: str
    widths: tuple[int, int, int]
    dtype: torch.dtype
    weighted: bool
    mean: bool

    @property
    def problem(self) -> Problem:
        """What the planner is told."""
        rel, (blocks, wide_in, wide_out) = self.rel, self.widths
        more = "".join(f", {name}" for name in ("transposed", "weighted", "mean") if getattr(self, name))
        kind = f"rgms_{self.what} of {rel.num_relations} relations, {blocks} x {wide_in} x {wide_out}{more}"
        size = *rel.shape, rel.num_edges
        return Problem(kind, *size, blocks * wide_out, type_name(self.dtype), planned_threads())

    def predicted(self) -> Mapping[Plan, float]:
        """Seconds that each plan takes, by counts of pairs alone; the rules' own first."""
        sides = self.rel.side(self.transposed), self.rel.side(not self.transposed)
        row_pairs, column_pairs = (side.pairs.relation_ptr.diff().double().numpy() for side in sides)
        edges = sides[0].pairs.indptr[sides[0].pairs.relation_ptr].diff().double().numpy()
        costs = predicted_costs(self.what, row_pairs, column_pairs, edges, *self.widths, self.dtype.itemsize)
        each = database().units["vector"] / _LANES / planned_threads()
        return {plan: costs[plan.dataflow] * each for plan in _SEARCHED[self.what]}


def by_plan(passes: Passes, run: Callable[[RelationalPlan], Tensor]) -> Tensor:
    """What ``run`` gives for the plan, which the graph keeps."""
    rel = passes.rel
    key = passes[1:], torch.get_num_threads(), in_force.generation
    plan = rel.calls.get(key)
    if plan is None:
        plan = rel.calls.keep(key, measured_plan(passes.problem, lambda: content_of(rel), BY_RULES))
    found = run(plan)
    if listeners.told is not None:
        what = f"{passes.what} of relations{' of the transpose' * passes.transposed}"
        decision = Decision(what, plan, passes.problem, lambda: content_of(rel), passes.predicted, run)
        listeners.told.append(decision)
    return found


@fact
def content_of(rel: RelGraph) -> str:
    """32 hex digits of the edges with their relations, in the user's order."""
    return content_hash(rel.relation, rel.source, rel.destination, rel.shape)


def product(
    rel: RelGraph,
    transposed: bool,
    order: str | None,
    x: Tensor,
    w: Tensor,
    a: Tensor | None,
    mean: bool,
    total,
    plan: RelationalPlan = BY_RULES,
) -> Tensor:
    """``executables.run_product``, in the orders "gather" and "scatter". plan: its tasks and how far gathers run ahead;
    its order is given apart.
    """
    relations, blocks, in_features, out_features = w.shape
    wide = accumulator_of(x.dtype)
    counts = counts_of(rel, transposed)
    widths = in_features, out_features
    most, planned, (row_ptr, gathers, scatters) = tasks_of_product(
        rel, transposed, blocks, *widths, x.dtype, order, plan
    )
    tasks, others = gathers.tasks, ()
    if order is None:
        near = is_near_limit(counts, blocks * in_features, blocks * out_features)
        others = _either_way(near, tasks > 1, ("gather", *widths), ("scatter", *widths))
    x = kernel_ready(x)
    bf16_pairs = _in_bf16_pairs("scatter", in_features, x.dtype)
    layouts = {by for by, panels in ((False, gathers), (bf16_pairs, scatters)) if panels.row.numel()}
    matrices = {by: _matrices(w, by) for by in layouts}
    # a kernel without panels reads none: any will do
    matrices.setdefault(False, next(iter(matrices.values())))
    first = row_ptr[:-1]
    if total is None:
        out = empty(x if x.dtype is wide else x.new_empty(0, dtype=wide), counts.rows, blocks * out_features)
    else:  # tasks clear no rows
        out, row_ptr = total, torch.zeros_like(row_ptr)
    parallel = tasks > 1 and planned_threads() > 1
    described = (*widths, blocks, most, mean or a is not None, x.dtype, row_ptr.dtype)
    weight = position_weight(rel.ends, planned, 1, gathers, a, mean, wide)
    sizes, arrays = (*_sizes(gathers, x.shape[0]), relations, counts.rows), (*_arrays(gathers), row_ptr)
    pairs = gathers.size, gathers.row, *_given(weight)
    entry = _entry("gather", *described, parallel, others, plan.prefetch)
    entry(*sizes, *arrays, *pairs, x, first, gathers.relation, matrices[False], out)
    if scatters.row.numel():
        weight = position_weight(rel.ends, planned, 2, scatters, a, mean, wide)
        sizes = *_sizes(scatters, counts.rows), relations, x.shape[0]
        pairs = scatters.size, scatters.row, *_given(weight)
        entry = _entry("scatter", *described, parallel, others, plan.prefetch)
        entry(*sizes, *_arrays(scatters), *pairs, x, scatters.relation, matrices[bf16_pairs], out)
    return out if total is not None else out.to(x.dtype)


def outer_sums(
    rel: RelGraph,
    transposed: bool,
    x: Tensor,
    g: Tensor,
    blocks: int,
    a: Tensor | None,
    mean: bool,
    by: str | None,
    dtype: torch.dtype,
    plan: RelationalPlan = BY_RULES,
) -> Tensor:
    """``executables.run_sum``. plan: as of `product`."""
    in_features, out_features = x.shape[1] // blocks, g.shape[1] // blocks
    counts = counts_of(rel, transposed)
    small = is_small(counts, x.shape[1], g.shape[1])
    choose = {"rows": never, "columns": always, None: never if small else sum_by_columns}[by]
    by_rows, by_columns = rel.split(transposed, choose, x.shape[1], g.shape[1])
    near = is_near_limit(counts, x.shape[1], g.shape[1])
    others = _either_way(near, not small, ("sum", in_features, out_features), ("sum", out_features, in_features))
    found = [] if by_rows is None else [_outer(rel, by_rows, x, g, blocks, a, mean, others, plan).to(dtype)]
    if by_columns is not None:
        found.append(_outer(rel, by_columns, g, x, blocks, a, mean, others, plan).to(dtype).transpose(2, 3))
    # each has zeros where the other has sums
    return found[0] if len(found) == 1 else found[0].add_(found[1])


def dots(
    rel: RelGraph,
    x: Tensor,
    w: Tensor,
    g: Tensor,
    mean: bool,
    transposed: bool,
    plan: RelationalPlan = BY_RULES,
) -> Tensor:
    """``executables.run_dot``."""
    wide = accumulator_of(x.dtype)
    out = x.new_empty((rel.num_edges, 1), dtype=wide)
    # the products of the fewer pairs; the other end is gathered
    counts = counts_of(rel, transposed)
    small = is_small(counts, x.shape[1], g.shape[1])
    near = is_near_limit(counts, x.shape[1], g.shape[1])
    others = _either_way(near, not small, ("dot", w.shape[3], w.shape[2]), ("dot", w.shape[2], w.shape[3]))
    choose = {"rows": never, "columns": always, "": never if small else _fewer_columns}[plan.dataflow]
    by_rows, by_columns = rel.split(transposed, choose)
    if by_rows is not None:
        _dots(rel, by_rows, g, w.transpose(2, 3), x, out, others, plan)
    if by_columns is not None:
        _dots(rel, by_columns, x, w, g, out, others, plan)
    out = out.flatten()
    return out.mul_(rel.mean_scale(wide)) if mean else out


def _outer(
    rel: RelGraph,
    part: RelationSplit,
    x: Tensor,
    g: Tensor,
    blocks: int,
    a: Tensor | None,
    mean: bool,
    others: tuple,
    plan: RelationalPlan,
) -> Tensor:
    """The sums of the relations of a part in the accumulation type, zeros for the others; x is added up over the pairs
    of the part, the rows of g."""
    in_features, out_features = x.shape[1] // blocks, g.shape[1] // blocks
    wide, relations = accumulator_of(x.dtype), rel.num_relations
    # two rows of each pair are kept
    most = panel_pairs((x.shape[1] + g.shape[1]) // 2, wide.itemsize)
    cost = cost_per_pair(out_features, x.itemsize)
    limit = part_limit(rel.num_edges, part.pairs.count, cost, plan)
    planned = RelationTasks(limit, most, cost)
    _, panels = part.derived(planned)
    slot, more = slots(part, planned, relations)
    weight = position_weight(part, planned, 1, panels, a, mean, wide)
    x, g = kernel_ready(x), kernel_ready(g)
    # the first task of a relation fills its matrix, the others one each that is added to it
    out = x.new_empty((relations + more.numel(), blocks, in_features, out_features), dtype=wide)
    if panels.tasks - more.numel() < relations:
        out[:relations].zero_()
    parallel = panels.tasks > 1 and planned_threads() > 1
    described = blocks, most, weight is not None, x.dtype, panels.row.dtype, parallel, others, plan.prefetch
    sizes = *_sizes(panels, x.shape[0]), out.shape[0], g.shape[0]
    pairs = panels.size, panels.row, *_given(weight)
    _entry("sum", in_features, out_features, *described)(*sizes, *_arrays(panels), *pairs, x, slot, g, out)
    if more.numel():
        out[:relations].index_add_(0, more, out[relations:])
        out = out[:relations].clone()
    return out


def _dots(
    rel: RelGraph,
    part: RelationSplit,
    g: Tensor,
    w: Tensor,
    x: Tensor,
    out: Tensor,
    others: tuple,
    plan: RelationalPlan,
) -> None:
    """Fill out[e] for the edges of a part, with a product of g's row for each of its pairs."""
    relations, blocks, in_features, out_features = w.shape
    most = panel_pairs(x.shape[1], out.itemsize)
    cost = cost_per_pair(out_features, x.itemsize)
    _, panels = part.derived(RelationTasks(part_limit(rel.num_edges, part.pairs.count, cost, plan), most, cost))
    x, g = kernel_ready(x), kernel_ready(g)
    parallel = panels.tasks > 1 and planned_threads() > 1
    described = blocks, most, False, x.dtype, panels.row.dtype, parallel, others, plan.prefetch
    entry = _entry("dot", in_features, out_features, *described)
    sizes = *_sizes(panels, x.shape[0]), relations, g.shape[0], out.shape[0]
    matrices = _matrices(w, _in_bf16_pairs("dot", in_features, x.dtype))
    entry(*sizes, *_arrays(panels), panels.size, panels.row, panels.edge_ids, x, g, panels.relation, matrices, out)


def _sizes(panels: Panels, ends: int) -> tuple[int, ...]:
    """What all programs begin with; ends: nodes at the other end of the pairs' edges."""
    return panels.tasks, panels.size.numel(), panels.row.numel(), ends, panels.indices.numel()


def _arrays(panels: Panels) -> tuple[Tensor, ...]:
    return panels.panel_ptr, panels.pair_ptr, panels.indptr, panels.indices


def _given(weight: Tensor | None) -> tuple[Tensor, ...]:
    return () if weight is None else (weight,)


def _fewer_columns(row_pairs: Tensor, column_pairs: Tensor, edges: Tensor) -> Tensor:
    return column_pairs < row_pairs


def _matrices(w: Tensor, bf16_pairs: bool) -> Tensor:
    """(relations, blocks, F_in * F_out): the matrices as programs want them, with two rows side by side where
    ``bf16_pairs``.
    """
    in_features, out_features = w.shape[2:]
    tile = column_tile_of(out_features, type_name(w.dtype))
    if bf16_pairs:
        w = _tiled(in_bf16_pairs(w), 2 * tile)
    elif is_tiled(in_features, out_features, type_name(w.dtype)):
        w = _tiled(w, tile)
    return kernel_ready(w.flatten(2).contiguous())


def _in_bf16_pairs(make: str, in_features: int, dtype: torch.dtype) -> bool:
    """Whether features are multiplied two at a time: those that are stored. Sums are not rounded for it."""
    return make in ("scatter", "dot") and takes_bf16_pairs(in_features, type_name(dtype))


def _tiled(w: Tensor, tile: int) -> Tensor:
    """(relations, blocks, F_in * F_out): the columns of each matrix in tiles, rows of one tile after the other."""
    relations, blocks, rows, columns = w.shape
    if columns <= tile:
        return w.flatten(2)
    tiled, whole = empty(w, relations, blocks, rows * columns), columns // tile * tile
    tiles, rest = tiled.split([rows * whole, rows * (columns - whole)], 2)
    tiles.view(relations, blocks, -1, rows, tile).copy_(w[..., :whole].unflatten(3, (-1, tile)).transpose(2, 3))
    rest.view(relations, blocks, rows, columns - whole).copy_(w[..., whole:])
    return tiled


def _either_way(near: bool, large: bool, by_rows: tuple, by_columns: tuple) -> tuple[tuple, ...]:
    """What another graph may want of an operator where this one goes one way: no later batch is to wait for a compiler.

    by_rows, by_columns: (program, F_in, F_out) for either kind of pairs. The result: those of another side of the
    limit.
    """
    several = planned_threads() > 1
    if near:
        return (*by_rows, several), (*by_rows, False), (*by_columns, several)
    return ((*by_columns, several),) if large else ()


def _entry(
    make: str,
    in_features: int,
    out_features: int,
    blocks: int,
    panel: int,
    weighted: bool,
    dtype,
    index,
    parallel,
    others: tuple[tuple, ...],
    prefetch: int,
):
    """The kernel's entry; with it come ``others``: its like for other (program, F_in, F_out, parallel)."""
    described = blocks, panel, weighted, dtype, index, prefetch, in_force.generation
    entry = _entries.get((make, in_features, out_features, *described, parallel))
    if entry is None or (others and (described, others) not in _at_hand):
        _at_hand.keep((described, others), True)
        for program, f_in, f_out, several in (*others, (make, in_features, out_features, parallel)):
            types, bf16_pairs = (type_name(dtype), type_name(index)), _in_bf16_pairs(program, f_in, dtype)
            spec = RgmsSpec(f_in, f_out, blocks, panel, 0, 0, 0, weighted, *types, bf16_pairs=bf16_pairs)
            entry = Launch(rgms_kernel(program, spec, several, prefetch), f"{program}, {in_threads(several)}")
            _entries.keep((program, f_in, f_out, *described, several), entry)
    return entry
