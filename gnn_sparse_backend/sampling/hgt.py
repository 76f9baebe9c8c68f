"""Sampling by budgets (Hu et al., Heterogeneous Graph Transformer, 2020): a number of nodes of each type a layer.

A node that may come next has a budget: the sum of 1 / degree over the edges into what was met. Nodes of each type are
drawn without replacement by the squares of their budgets. A destination of more than ``MOST`` neighbours is known by
that many of them, drawn anew each time, as torch-sparse has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .draws import Drawn, Relation, draw, stream_of
from .layers import Edges, Layers, between
from .numbers import Numbers

MOST = 50


def sample_budgets(
    relations: Sequence[Relation],
    sizes: Mapping[str, int],
    seeds: Mapping[str, Tensor],
    samples: Mapping[str, Sequence[int]],
    seed: int,
) -> Layers:
    """Args:
    sizes: how many nodes each type has.
    seeds: by type, (n,) int64 nodes.
    samples: by type, how many nodes a layer.
    seed: of the random numbers.
    """
    nodes = {kind: seeds.get(kind, torch.empty(0, dtype=torch.int64)).to(torch.int64) for kind in sizes}
    budgets = {kind: torch.zeros(size, dtype=torch.float64) for kind, size in sizes.items()}
    met = {kind: torch.zeros(size, dtype=torch.bool) for kind, size in sizes.items()}
    fresh = dict(nodes)
    hops = {kind: [len(each)] for kind, each in nodes.items()}
    for layer in range(max(map(len, samples.values()))):
        for kind, each in fresh.items():
            met[kind][each] = True
        for at, relation in enumerate(relations):
            _spend(relation, fresh[relation.destination], budgets[relation.source], stream_of(seed, layer, at))
        for at, kind in enumerate(sizes):
            budget = torch.where(met[kind], 0, budgets[kind])
            stream = stream_of(seed, layer, len(relations) + at)
            fresh[kind] = _chosen(budget, samples[kind][layer], stream)
            nodes[kind] = torch.cat([nodes[kind], fresh[kind]])
            hops[kind].append(len(fresh[kind]))
    known = {kind: Numbers(sizes[kind], False, each) for kind, each in nodes.items()}
    edges = []
    for at, relation in enumerate(relations):
        numbers, drawn = between(relation, known, MOST, stream_of(seed, -1, at))
        edges.append(Edges(numbers, drawn.rows, drawn.positions, [len(numbers)]))
    return Layers(nodes, None, hops, edges)


def _spend(relation: Relation, rows: Tensor, budget: Tensor, stream: int) -> None:
    drawn: Drawn = draw(relation, rows.contiguous(), 0, MOST, stream)
    counts = drawn.pointers.diff()
    budget.index_add_(0, drawn.neighbours, (1.0 / counts.to(torch.float64)).repeat_interleave(counts))


def _chosen(budget: Tensor, count: int, stream: int) -> Tensor:
    """(at most count,) nodes, drawn without replacement by the squares of their budgets: a row whose neighbours are
    these nodes."""
    candidates = budget.nonzero().view(-1)
    indptr = torch.tensor([0, len(candidates)])
    row = Relation("", "", indptr, candidates, budget.shape[0], budget[candidates] ** 2)
    return draw(row, torch.zeros(1, dtype=torch.int64), 0, max(count, 0), stream).neighbours
