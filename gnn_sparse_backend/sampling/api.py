"""``sample_neighbors``: what users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from ..structures.graph import Graph
from .checks import (
    check_choices,
    check_fanouts,
    check_graph_on_cpu,
    check_per_edge,
    check_seeds,
    check_times,
    given_by_type,
)
from .layers import sample_layers
from .relations import numbered_relation
from .sample import EdgeType, HeteroSample, Sample
from .seeds import drawn_seed

_ONE: EdgeType = ("", "", "")


@overload
def sample_neighbors(
    graph: Graph,
    seeds: Tensor,
    fanouts: Sequence[int],
    replace: bool = False,
    weights: Tensor | None = None,
    *,
    time: Tensor | None = None,
    edge_time: Tensor | None = None,
    seed_time: Tensor | None = None,
    strategy: str = "uniform",
    disjoint: bool = False,
    directed: bool = True,
    seed: int | None = None,
) -> Sample: ...


@overload
def sample_neighbors(
    graph: Mapping[EdgeType, Graph],
    seeds: Mapping[str, Tensor],
    fanouts: Sequence[int] | Mapping[EdgeType, Sequence[int]],
    replace: bool = False,
    weights: Mapping[EdgeType, Tensor] | None = None,
    *,
    time: Mapping[str, Tensor] | None = None,
    edge_time: Mapping[EdgeType, Tensor] | None = None,
    seed_time: Mapping[str, Tensor] | None = None,
    strategy: str = "uniform",
    disjoint: bool = False,
    directed: bool = True,
    seed: int | None = None,
) -> HeteroSample: ...


def sample_neighbors(
    graph: Any,
    seeds: Any,
    fanouts: Any,
    replace: bool = False,
    weights: Any = None,
    *,
    time: Any = None,
    edge_time: Any = None,
    seed_time: Any = None,
    strategy: str = "uniform",
    disjoint: bool = False,
    directed: bool = True,
    seed: int | None = None,
) -> Any:
    """A mini-batch: ``fanouts[0]`` in-neighbours of each seed, ``fanouts[1]`` of each node met so, and so on.

        sample = gsb.sample_neighbors(graph, torch.arange(1024), [10, 10])
        y = gsb.spmm(sample.graph, x[sample.nodes], reduce="mean")[:1024]

    Args:
        graph: a square ``Graph`` on the CPU, or by edge type (source, name, destination) one for each.
        seeds: (n,) nodes, or by node type. A node given twice has two rows, of which the first one's number is used.
        fanouts: neighbours for each node of a layer, -1 for all of them; or by edge type such a list.
        replace: draw the same edge more than once if it comes so. Without, a node of fewer neighbours has all of them.
        weights: (edges,) float32 or float64, in the order of the edges, or by edge type: an edge is drawn in proportion
            to its weight; without replacement one after the other, in proportion to the weights of those left. Edges of
            weight 0 are drawn only where the others are not enough.
        time: (nodes,) integers, or by node type: only neighbours whose time is not after the seed's are drawn. Implies
            ``disjoint``.
        edge_time: (edges,) integers, or by edge type: the same of edges; it wants ``seed_time``.
        seed_time: (n,) integers, or by node type: the seeds' times, where these are not their own ``time``.
        strategy: "uniform", or "last": of the neighbours that may be drawn only the latest.
        disjoint: each seed has a tree of its own, which shares no nodes with others.
        directed: False for all edges between the nodes that were met, instead of those that were drawn.
        seed: of the random numbers: an int gives the same sample every time, for any number of threads. None draws one
            from torch's default generator.

    Raises ValueError, TypeError or IndexError that quote what they got.
    """
    check_choices(disjoint, seed, replace=replace, directed=directed)
    hetero = not isinstance(graph, Graph)
    graphs = check_graph_on_cpu(graph)
    if hetero:
        kinds = tuple(dict.fromkeys(kind for edge in graphs for kind in (edge[0], edge[2])))
    else:
        kinds = ("",)
        seeds = {"": seeds}
        weights, edge_time = (None if each is None else {_ONE: each} for each in (weights, edge_time))
        time, seed_time = (None if each is None else {"": each} for each in (time, seed_time))
    sizes = dict.fromkeys(kinds, 0)
    for (source, _, destination), each in graphs.items():
        for kind, size in ((source, each.shape[1]), (destination, each.shape[0])):
            if sizes[kind] not in (0, size):
                raise ValueError(
                    f"sample_neighbors: node type {kind!r} has {sizes[kind]} nodes in one graph, {size} in another"
                )
            sizes[kind] = size
    seeds = check_seeds(seeds, sizes)
    hops = check_fanouts(fanouts, graphs)
    latest = check_times(time, edge_time, seed_time, seeds, sizes, graphs, weights, strategy)
    if latest is not None:
        disjoint = True
    if disjoint and not directed:
        raise ValueError(
            "sample_neighbors: directed=False gives one subgraph, disjoint=True or a time many; choose one"
        )
    weights = check_per_edge("weights", weights, graphs, (torch.float32, torch.float64))
    relations = [
        numbered_relation(
            each,
            kind[0],
            kind[2],
            given_by_type(weights, kind),
            given_by_type(time, kind[0]),
            given_by_type(edge_time, kind),
        )
        for kind, each in graphs.items()
    ]
    layers = sample_layers(
        [each.relation for each in relations],
        sizes,
        seeds,
        hops,
        drawn_seed() if seed is None else seed,
        replace=replace,
        disjoint=disjoint,
        latest=latest,
        last=strategy == "last",
        induced=not directed,
    )
    found = dict(zip(graphs, layers.edges))
    edges = {
        kind: each.positions if of.edges is None else of.edges[each.positions].to(torch.int64)
        for (kind, each), of in zip(found.items(), relations)
    }
    if not hetero:
        only = found[_ONE]
        trees = None if layers.trees is None else layers.trees[""]
        ends = only.sources, only.destinations, edges[_ONE]
        return Sample(layers.nodes[""], *ends, trees, layers.hops[""], only.hops)
    return HeteroSample(
        layers.nodes,
        {kind: each.sources for kind, each in found.items()},
        {kind: each.destinations for kind, each in found.items()},
        edges,
        layers.trees,
        layers.hops,
        {kind: each.hops for kind, each in found.items()},
    )
