"""Sampling layer by layer: the neighbours of what the layer before has met, over relations between types of nodes.

Relations of each layer come in their order, and rows in the order in which nodes were met, so that numbers of nodes
are the same as those of pyg-lib for the same draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..frozen import dataclass
from .draws import Drawn, Relation, draw, stream_of
from .numbers import Numbers


@dataclass(frozen=True)
class Edges:
    """The drawn edges of one relation: (drawn,) int64 numbers of sources and destinations in the sample, and positions,
    in the order of the destinations. hops: how many edges each layer has.
    """

    sources: Tensor
    destinations: Tensor
    positions: Tensor
    hops: list[int]


@dataclass(frozen=True)
class Layers:
    """nodes, trees: by type, (met,) int64; no trees without several. hops: of each type, how many are new with the
    seeds and with each layer. edges: of the relations in their order.
    """

    nodes: dict[str, Tensor]
    trees: dict[str, Tensor] | None
    hops: dict[str, list[int]]
    edges: list[Edges]


def sample_layers(
    relations: Sequence[Relation],
    sizes: Mapping[str, int],
    seeds: Mapping[str, Tensor],
    fanouts: Sequence[Sequence[int]],
    seed: int,
    *,
    replace: bool = False,
    disjoint: bool = False,
    latest: Tensor | None = None,
    last: bool = False,
    induced: bool = False,
) -> Layers:
    """Args:
    sizes: how many nodes each type has.
    seeds: by type, (n,) int64 nodes.
    fanouts: of each relation, for each layer; below 0 all neighbours.
    seed: of the random numbers.
    disjoint: a tree of its own for each seed, in the order of ``seeds``.
    latest: (trees,) int64; of relations with times, neighbours until then are drawn, with ``last`` the last ones.
    induced: all edges between nodes that were met, instead of those that were drawn.
    """
    for each in relations:
        if each.destinations != sizes[each.destination]:
            raise ValueError(
                f"{each.destinations} rows for {sizes[each.destination]} nodes of type {each.destination!r}"
            )
    known = numbered_seeds(sizes, seeds, disjoint)

    def step(layer: int, at: int, first: int, rows: Tensor, fanout: int) -> tuple[Tensor, Drawn]:
        relation, stream = relations[at], stream_of(seed, layer, at)
        drawn = draw(relation, rows, first, fanout, stream, replace=replace, latest=latest, last=last)
        span = known[relation.destination].span
        return known[relation.source].number(rows, span, drawn.pointers, drawn.neighbours), drawn

    hops, found = layer_by_layer(relations, known, fanouts, step)
    if induced:
        found = [[between(relation, known)] for relation in relations]
    return gathered(known, hops, found, disjoint)


def layer_by_layer(
    relations: Sequence[Relation],
    known: Mapping[str, Numbers],
    fanouts: Sequence[Sequence[int]],
    step: Callable[[int, int, int, Tensor, int], tuple[Tensor, Drawn]],
) -> tuple[dict[str, list[int]], list[list[tuple[Tensor, Drawn]]]]:
    """Go from the nodes that each layer met to their neighbours, by all relations. Return hops and edges, as `gathered`
    takes them.

    step: called with a layer, the place of a relation, the number of the first node of the layer before, the keys of
        these nodes and the fanout; draws their neighbours, numbers them, and returns the numbers and the edges.
    """
    begin = dict.fromkeys(known, 0)
    hops = {kind: [numbers.size] for kind, numbers in known.items()}
    found: list[list[tuple[Tensor, Drawn]]] = [[] for _ in relations]
    for layer in range(max(map(len, fanouts), default=0)):
        end = {kind: numbers.size for kind, numbers in known.items()}
        for at, relation in enumerate(relations):
            first = begin[relation.destination]
            rows = known[relation.destination].keys[first : end[relation.destination]]
            fanout = fanouts[at][layer] if layer < len(fanouts[at]) else 0
            found[at].append(step(layer, at, first, rows, fanout))
        begin = end
        for kind, numbers in known.items():
            hops[kind].append(numbers.size - end[kind])
    return hops, found


def numbered_seeds(sizes: Mapping[str, int], seeds: Mapping[str, Tensor], disjoint: bool) -> dict[str, Numbers]:
    """Number the seeds of each type; with ``disjoint`` trees are numbered in the order of ``seeds``, too."""
    keys, tree = dict.fromkeys(sizes, torch.empty(0, dtype=torch.int64)), 0
    for kind, nodes in seeds.items():
        keys[kind] = nodes.to(torch.int64)
        if disjoint:
            keys[kind] = keys[kind] + torch.arange(tree, tree + len(nodes)) * sizes[kind]
            tree += len(nodes)
    return {kind: Numbers(size, disjoint, keys[kind]) for kind, size in sizes.items()}


def gathered(
    known: Mapping[str, Numbers],
    hops: dict[str, list[int]],
    found: Sequence[Sequence[tuple[Tensor, Drawn]]],
    disjoint: bool,
) -> Layers:
    """What was numbered and drawn. found: of each relation the numbers of sources and the edges of each layer."""
    edges = [_joined(each) for each in found]
    nodes = {kind: numbers.keys % numbers.span if disjoint else numbers.keys for kind, numbers in known.items()}
    trees = {kind: numbers.keys // numbers.span for kind, numbers in known.items()} if disjoint else None
    return Layers(nodes, trees, hops, edges)


def between(
    relation: Relation, known: Mapping[str, Numbers], fanout: int = -1, stream: int = 0
) -> tuple[Tensor, Drawn]:
    """The edges between nodes that were met, among ``fanout`` that are drawn for each destination, or all."""
    to = known[relation.destination]
    drawn = draw(relation, to.keys, 0, fanout, stream)
    numbers = known[relation.source].find(to.keys, to.span, drawn.pointers, drawn.neighbours)
    met = numbers >= 0
    kept = Drawn(drawn.pointers, drawn.positions[met], drawn.neighbours[met], drawn.rows[met])
    return numbers[met], kept


def _joined(found: Sequence[tuple[Tensor, Drawn]]) -> Edges:
    def joined(parts: list[Tensor]) -> Tensor:
        return parts[0] if len(parts) == 1 else torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)

    return Edges(
        joined([numbers for numbers, _ in found]),
        joined([drawn.rows for _, drawn in found]),
        joined([drawn.positions for _, drawn in found]),
        [len(numbers) for numbers, _ in found],
    )
