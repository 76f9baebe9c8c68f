"""``pyg_lib.sampler``: neighbours, subgraphs and walks of a graph by rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ...formats.counts import prefix_sums
from ...sampling.layers import sample_layers
from ...sampling.seeds import drawn_seed
from ...sampling.walks import walks
from ..core.substitutes.scripted import counted
from ..torch_sparse.relations import is_last, of_types
from ..torch_sparse.sampling import induced

_counted = counted("pyg_lib")
EdgeType = tuple[str, str, str]
V = TypeVar("V")
_ONE: EdgeType = ("", "", "")
_NAME = "__".join(_ONE)


@_counted
def neighbor_sample(
    rowptr: Tensor,
    col: Tensor,
    seed: Tensor,
    num_neighbors: list[int],
    node_time: Tensor | None = None,
    edge_time: Tensor | None = None,
    seed_time: Tensor | None = None,
    edge_weight: Tensor | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, list[int], list[int]]:
    """Return (rows, columns, nodes, edges, nodes by layer, edges by layer) of a sample: ``num_neighbors[0]`` neighbours
    of each seed, and so on, all of them where that is below 0.

    Args:
        csc: rows are destinations, and the two first results change places.
        replace: draw an edge more than once if it comes so. directed: only drawn edges, else all between the nodes.
        disjoint: a tree of its own for each seed; nodes are (n, 2) then, the tree first.
        edge_weight: (E,) by which edges are drawn.
        node_time, edge_time: integers by which each row ascends; seed_time: (seeds,), by default the seeds' own.
        temporal_strategy: "uniform" draws what is not after the seed, "last" takes the last of that. Both want
            ``disjoint``.

    Raises IndexError for indices that are out of range, and ValueError for options that do not go together.
    """
    row, other, nodes, edges, by_node, by_edge = sampled(
        [""],
        [_ONE],
        {_NAME: rowptr},
        {_NAME: col},
        {"": seed},
        {_NAME: num_neighbors},
        _of("", node_time),
        _of(_NAME, edge_time),
        _of("", seed_time),
        _of(_NAME, edge_weight),
        csc,
        replace,
        directed,
        disjoint,
        temporal_strategy,
        return_edge_id,
    )
    found = None if edges is None else edges[_NAME]
    return row[_NAME], other[_NAME], nodes[""], found, by_node[""], by_edge[_NAME]


@_counted
def hetero_neighbor_sample(
    rowptr_dict: dict[EdgeType, Tensor],
    col_dict: dict[EdgeType, Tensor],
    seed_dict: dict[str, Tensor],
    num_neighbors_dict: dict[EdgeType, list[int]],
    node_time_dict: dict[str, Tensor] | None = None,
    edge_time_dict: dict[EdgeType, Tensor] | None = None,
    seed_time_dict: dict[str, Tensor] | None = None,
    edge_weight_dict: dict[EdgeType, Tensor] | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[
    dict[EdgeType, Tensor],
    dict[EdgeType, Tensor],
    dict[str, Tensor],
    dict[EdgeType, Tensor] | None,
    dict[str, list[int]],
    dict[EdgeType, list[int]],
]:
    """Return what `neighbor_sample` does, by types of nodes and of edges, which are (source, relation, destination)."""
    kinds = dict.fromkeys(kind for each in rowptr_dict for kind in (each[0], each[2]))
    row, other, nodes, edges, by_node, by_edge = sampled(
        list(kinds),
        list(rowptr_dict),
        _by_name(rowptr_dict),
        _by_name(col_dict),
        seed_dict,
        _by_name(num_neighbors_dict),
        node_time_dict,
        None if edge_time_dict is None else _by_name(edge_time_dict),
        seed_time_dict,
        None if edge_weight_dict is None else _by_name(edge_weight_dict),
        csc,
        replace,
        directed,
        disjoint,
        temporal_strategy,
        return_edge_id,
    )

    def by_type(found: Mapping[str, V]) -> dict[EdgeType, V]:
        return {kind: found["__".join(kind)] for kind in rowptr_dict}

    ids = None if edges is None else by_type(edges)
    return by_type(row), by_type(other), nodes, ids, by_node, by_type(by_edge)


def sampled(
    node_types: Sequence[str],
    edge_types: Sequence[EdgeType],
    rowptr_dict: Mapping[str, Tensor],
    col_dict: Mapping[str, Tensor],
    seed_dict: Mapping[str, Tensor],
    num_neighbors_dict: Mapping[str, Sequence[int]],
    node_time_dict: Mapping[str, Tensor] | None = None,
    edge_time_dict: Mapping[str, Tensor] | None = None,
    seed_time_dict: Mapping[str, Tensor] | None = None,
    edge_weight_dict: Mapping[str, Tensor] | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[
    dict[str, Tensor],
    dict[str, Tensor],
    dict[str, Tensor],
    dict[str, Tensor] | None,
    dict[str, list[int]],
    dict[str, list[int]],
]:
    """What `hetero_neighbor_sample` returns, with edge types joined by ``__``, as its operator in C++ has it."""
    if not directed and disjoint:
        raise ValueError("directed=False gives one subgraph, disjoint=True many; choose one")
    times, weights = (node_time_dict or {}, edge_time_dict or {}), edge_weight_dict or {}
    graph = of_types(node_types, edge_types, rowptr_dict, col_dict, *times, weights, seed_dict, csc)
    names = ["__".join(each) for each in edge_types]
    layers = sample_layers(
        graph.relations,
        graph.sizes,
        seed_dict,
        [num_neighbors_dict[name] for name in names],
        drawn_seed(),
        replace=replace,
        disjoint=disjoint,
        latest=graph.latest(seed_dict, seed_time_dict, disjoint),
        last=is_last(temporal_strategy),
        induced=not directed,
    )
    found = dict(zip(names, layers.edges))
    ends = ({n: e.sources for n, e in found.items()}, {n: e.destinations for n, e in found.items()})
    row, other = ends if csc else ends[::-1]
    nodes = layers.nodes
    if layers.trees is not None:
        nodes = {kind: torch.stack([layers.trees[kind], each], 1) for kind, each in nodes.items()}
    edges = {n: e.positions for n, e in found.items()} if return_edge_id else None
    return row, other, nodes, edges, layers.hops, {n: e.hops for n, e in found.items()}


def _of(name: str, given: Tensor | None) -> dict[str, Tensor] | None:
    return None if given is None else {name: given}


def _by_name(given: Mapping[EdgeType, V]) -> dict[str, V]:
    return {"__".join(kind): each for kind, each in given.items()}


@_counted
def subgraph(
    rowptr: Tensor, col: Tensor, nodes: Tensor, return_edge_id: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (pointers, columns, edges) between ``nodes`` (n,), by their places among these."""
    row, other, edges = induced(nodes, rowptr, col)
    pointers = prefix_sums(torch.bincount(row, minlength=nodes.numel()))
    return pointers, other, edges if return_edge_id else None


@_counted
def random_walk(rowptr: Tensor, col: Tensor, seed: Tensor, walk_length: int, p: float = 1.0, q: float = 1.0) -> Tensor:
    """Return (n, walk_length + 1) nodes of walks, as `torch_cluster.random_walk` does, of edges by rows, in each of
    which columns ascend.
    """
    given = (x.detach().cpu().to(torch.int64).contiguous() for x in (rowptr, col, seed))
    return walks(*given, walk_length, drawn_seed(), float(p), float(q))[0].to(seed.device)


__all__ = ["hetero_neighbor_sample", "neighbor_sample", "random_walk", "subgraph"]
