"""Panels of pairs, on the CPU: those that a product is made in, and what stands beside them.

Each is a fact of the structure, made once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...formats.partitions.relational import Panels
from ...planner.cpu.products import BY_RULES, RelationalPlan
from ...planner.cpu.relational import (
    RelationCounts,
    by_column,
    cost_per_pair,
    panel_pairs,
    row_task_count,
)
from ...runtime.type_names import accumulator_of
from ...structures.derived import fact
from ...structures.relational.graph import RelGraph
from ...structures.relational.sides import Ends, RelationSplit, RelationTasks, RowTasks


def tasks_of_product(
    rel: RelGraph,
    transposed: bool,
    blocks: int,
    in_features: int,
    out_features: int,
    dtype: torch.dtype,
    order: str | None = None,
    plan: RelationalPlan = BY_RULES,
) -> tuple[int, RowTasks, tuple[Tensor, Panels, Panels]]:
    """(pairs of a panel at most, the fact that the panels are, the panels) of a product on the CPU. plan: says how many
    tasks; its order is given apart.
    """
    most = panel_pairs(blocks * max(in_features, out_features), accumulator_of(dtype).itemsize)
    counts = counts_of(rel, transposed)
    tasks = plan.scaled(row_task_count(counts, rel.num_relations, blocks * in_features, blocks * out_features))
    widths = in_features, out_features, blocks, dtype.itemsize
    if order is None and tasks == 1:
        order = "gather"
    choose = {"gather": never, "scatter": always, None: lambda *counted: by_column(*counted, *widths)}[order]
    # the panels depend on what is chosen alone, which widths may share, and prepared panels are large
    key = (order,) if order else widths
    cost = cost_per_pair(out_features, dtype.itemsize)
    planned = RowTasks(transposed, key, tasks, most, cost, choose)
    return most, planned, rel.ends.derived(planned)


def counts_of(rel: RelGraph, transposed: bool) -> RelationCounts:
    """Rows, edges and pairs as one side sees them."""
    counts = rel.counts
    if not transposed:
        return counts
    return RelationCounts(rel.shape[1], counts.edges, counts.column_pairs, counts.row_pairs)


def never(row_pairs: Tensor, *_) -> Tensor:
    """A ``Chooser`` that takes the edges of no relation by column pairs."""
    return torch.zeros_like(row_pairs, dtype=torch.bool)


def always(row_pairs: Tensor, *_) -> Tensor:
    """One that takes those of all."""
    return torch.ones_like(row_pairs, dtype=torch.bool)


@fact
def slots(split: RelationSplit, planned: RelationTasks, relations: int) -> tuple[Tensor, Tensor]:
    """(place of each task's matrix, relations of those that come after the first of a relation) of the tasks of a split
    of ``relations`` relations.
    """
    relation = split.derived(planned)[0]
    again = torch.zeros(relation.numel(), dtype=torch.bool, device=relation.device)
    again[1:] = relation[1:] == relation[:-1]
    later = relations + again.cumsum(0) - 1
    return torch.where(again, later, relation.long()).to(relation.dtype), relation[again].long()


@fact
def scale_of_panels(
    owner: Ends | RelationSplit, planned: RowTasks | RelationTasks, which: int, dtype: torch.dtype
) -> Tensor:
    """1 / the number of edges of the relation into the destination, at each position of the panels of a plan.

    which: of the values of the plan are the panels.
    """
    ends = owner if isinstance(owner, Ends) else owner.ends
    panels = owner.derived(planned)[which]
    return ends.mean_scale(dtype).index_select(0, panels.edge_ids)


def position_weight(
    owner: Ends | RelationSplit, planned: RowTasks | RelationTasks, which: int, panels: Panels, a, mean: bool, dtype
) -> Tensor | None:
    """What stands before each edge, at each position of the panels, a value of the plan that their owner has."""
    scale = scale_of_panels(owner, planned, which, dtype) if mean else None
    if a is None:
        return scale
    a = a.index_select(0, panels.edge_ids)
    return a if scale is None else a.mul_(scale)
