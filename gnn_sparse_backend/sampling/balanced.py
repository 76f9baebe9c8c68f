"""Sampling layer by layer with a budget for each path: a tree has as many nodes as its fanouts say where it can.

A path is a type of seeds and the relations that lead from them. Its budget in a tree is the product of the fanouts on
it, and the number of seeds where all have one tree. Nodes of a path ask for equal shares of what is left of it, those
of few neighbours first: what these do not have, the others are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .draws import Drawn, Relation, draw, stream_of
from .layers import Layers, gathered, layer_by_layer, numbered_seeds


def sample_balanced(
    relations: Sequence[Relation],
    sizes: Mapping[str, int],
    seeds: Mapping[str, Tensor],
    fanouts: Sequence[Sequence[int]],
    seed: int,
    *,
    disjoint: bool = False,
    latest: Tensor | None = None,
    last: bool = False,
) -> Layers:
    """Args are those of `layers.sample_layers`. A fanout below 0 asks for all neighbours, and is as large as those."""
    known = numbered_seeds(sizes, seeds, disjoint)
    paths = {kind: torch.zeros(numbers.size, dtype=torch.int64) for kind, numbers in known.items()}
    budgets = {kind: torch.full_like(path, 1 if disjoint else path.numel()) for kind, path in paths.items()}

    def step(layer: int, at: int, first: int, rows: Tensor, fanout: int) -> tuple[Tensor, Drawn]:
        relation = relations[at]
        to, source = known[relation.destination], known[relation.source]
        path, budget = (x[relation.destination][first : len(rows) + first] for x in (paths, budgets))
        drawn = draw(relation, rows, first, -1, 0, latest=latest)
        many = drawn.pointers.diff()
        group = torch.stack([rows // to.span, path]).unique(dim=1, return_inverse=True)[1]
        if fanout < 0:
            budget = torch.zeros_like(many).index_add_(0, group, many)[group]
        else:
            budget = budget * fanout
            drawn = _chosen(drawn, _shares(many, group, budget), last, stream_of(seed, layer, at))
        size = source.size
        numbers = source.number(rows, to.span, drawn.pointers, drawn.neighbours)
        new = (numbers >= size).nonzero().view(-1)
        met = torch.full((source.size - size,), len(numbers)).scatter_reduce_(0, numbers[new] - size, new, "amin")
        by = drawn.rows[met] - first  # the row that met a node first
        paths[relation.source] = torch.cat([paths[relation.source], path[by] * len(relations) + at + 1])
        budgets[relation.source] = torch.cat([budgets[relation.source], budget[by]])
        return numbers, drawn

    return gathered(known, *layer_by_layer(relations, known, fanouts, step), disjoint)


def _shares(many: Tensor, group: Tensor, budget: Tensor) -> Tensor:
    """(rows,) how many neighbours each row takes. many: (rows,) how many it has; group: (rows,) of which path and tree
    it is; budget: (rows,) of that.
    """
    counts, waiting, left = [0] * len(many), torch.bincount(group).tolist(), dict(zip(group.tolist(), budget.tolist()))
    groups, has = group.tolist(), many.tolist()
    for row in many.argsort(stable=True).tolist():
        of = groups[row]
        counts[row] = min(has[row], left[of] // waiting[of])
        left[of] -= counts[row]
        waiting[of] -= 1
    return torch.tensor(counts, dtype=torch.int64)


def _chosen(drawn: Drawn, counts: Tensor, last: bool, stream: int) -> Drawn:
    """Choose ``counts`` edges of each row, the last ones or drawn ones, and keep their order."""
    generator = torch.Generator().manual_seed(stream)
    order = torch.rand(drawn.positions.shape[0], generator=generator).argsort()
    if last:
        order = torch.arange(order.shape[0] - 1, -1, -1)
    row = drawn.rows - int(drawn.rows[0]) if drawn.rows.numel() else drawn.rows
    order = order[row[order].argsort(stable=True)]
    begins = drawn.pointers[:-1]
    of = torch.arange(counts.shape[0]).repeat_interleave(drawn.pointers.diff())
    kept = order[torch.arange(order.shape[0]) - begins[of] < counts[of]].sort().values
    pointers = torch.zeros_like(drawn.pointers)
    torch.cumsum(counts, 0, out=pointers[1:])
    return Drawn(pointers, drawn.positions[kept], drawn.neighbours[kept], drawn.rows[kept])
