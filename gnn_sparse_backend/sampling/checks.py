"""What ``sample_neighbors`` was given: errors quote it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..structures.graph import Graph
from .sample import EdgeType

MOST = 1 << 31
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_graph_on_cpu(graph: Any) -> dict[EdgeType, Graph]:
    """The graphs by edge type, ("", "", "") of a single one."""
    if isinstance(graph, Graph):
        if graph.shape[0] != graph.shape[1]:
            raise ValueError(
                f"sample_neighbors: the graph has shape {graph.shape}, but its destinations must be its sources; "
                'give two types of nodes: {("source", "to", "destination"): graph}'
            )
        graphs: dict[EdgeType, Graph] = {("", "", ""): graph}
    elif isinstance(graph, Mapping) and graph:
        for kind, each in graph.items():
            if not (isinstance(kind, tuple) and len(kind) == 3 and all(isinstance(name, str) for name in kind)):
                raise TypeError(f"sample_neighbors: an edge type is (source, name, destination), got {kind!r}")
            if not isinstance(each, Graph):
                raise TypeError(f"sample_neighbors: edge type {kind} must have a Graph, got {type(each).__name__}")
        graphs = dict(graph)
    else:
        got = "an empty dict" if isinstance(graph, Mapping) else type(graph).__name__
        raise TypeError(f"sample_neighbors: graph must be a Graph, or a dict of them by edge type, got {got}")
    for each in graphs.values():
        if each.device.type != "cpu":
            raise ValueError(
                f"sample_neighbors: the graph is on {each.device}; sampling runs on the CPU: graph.to('cpu')"
            )
    return graphs


def check_choices(disjoint: Any, seed: Any, **switches: Any) -> None:
    for name, given in {"disjoint": disjoint, **switches}.items():
        if not isinstance(given, bool):
            raise TypeError(f"sample_neighbors: {name} must be True or False, got {given!r}")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise TypeError(f"sample_neighbors: seed must be an int or None, got {seed!r}")


def check_seeds(seeds: Any, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    if not isinstance(seeds, Mapping):
        raise TypeError(f"sample_neighbors: seeds of several node types come as a dict, got {type(seeds).__name__}")
    for kind, each in seeds.items():
        name = _of("seeds", kind)
        if kind not in sizes:
            raise ValueError(f"sample_neighbors: {name}: there is no such node type, only {', '.join(sizes)}")
        _check_integers(name, each)
        if each.numel() >= MOST:
            raise ValueError(f"sample_neighbors: {name} are {each.numel()}; a sample has less than {MOST} nodes")
        if each.numel() and not 0 <= int(each.min()) <= int(each.max()) < sizes[kind]:
            bad = each[(each < 0) | (each >= sizes[kind])][0]
            raise IndexError(f"sample_neighbors: {name} has node {int(bad)}, but there are {sizes[kind]} nodes")
    return {kind: each.to(torch.int64).contiguous() for kind, each in seeds.items()}


def check_fanouts(fanouts: Any, graphs: Mapping[EdgeType, Graph]) -> list[list[int]]:
    if isinstance(fanouts, Mapping):
        if set(fanouts) != set(graphs):
            raise ValueError(
                f"sample_neighbors: fanouts are of {sorted(fanouts)}, but the edge types are {sorted(graphs)}"
            )
        found = [list(fanouts[kind]) for kind in graphs]
        if len({len(each) for each in found}) > 1:
            raise ValueError(f"sample_neighbors: fanouts must be as many for each edge type, got {dict(fanouts)}")
    elif isinstance(fanouts, (list, tuple)):
        found = [list(fanouts) for _ in graphs]
    else:
        raise TypeError(f"sample_neighbors: fanouts must be a list of ints, one a layer, got {fanouts!r}")
    for each in found:
        for fanout in each:
            if isinstance(fanout, bool) or not isinstance(fanout, int) or fanout < -1:
                raise ValueError(
                    f"sample_neighbors: a fanout is an int, -1 for all neighbours, got {fanout!r} in {each}"
                )
    return found


def check_per_edge(
    name: str, given: Mapping[EdgeType, Tensor] | None, graphs: Mapping[EdgeType, Graph], dtypes: Sequence[torch.dtype]
) -> Mapping[EdgeType, Tensor] | None:
    """A number for each edge, by edge type; not of every type."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"sample_neighbors: {name} of several edge types come as a dict, got {type(given).__name__}")
    for kind, each in (given or {}).items():
        of = _of(name, kind)
        if kind not in graphs:
            raise ValueError(f"sample_neighbors: {of}: there is no such edge type, only {sorted(graphs)}")
        edges = graphs[kind].num_edges
        if not _is_plain(each) or each.dtype not in dtypes or tuple(each.shape) != (edges,):
            wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes[:2])
            raise ValueError(f"sample_neighbors: {of} must be ({edges},) {wanted} on the CPU, got {_shown(each)}")
    return None if given is None else {kind: each.detach() for kind, each in given.items()}


def check_times(
    time: Mapping[str, Tensor] | None,
    edge_time: Mapping[EdgeType, Tensor] | None,
    seed_time: Mapping[str, Tensor] | None,
    seeds: Mapping[str, Tensor],
    sizes: Mapping[str, int],
    graphs: Mapping[EdgeType, Graph],
    weights: Any,
    strategy: str,
) -> Tensor | None:
    """(trees,) int64: until when each seed's neighbours may be drawn; None where no time counts."""
    if strategy not in ("uniform", "last"):
        raise ValueError(f"sample_neighbors: strategy must be 'uniform' or 'last', got {strategy!r}")
    if time is None and edge_time is None:
        if seed_time is not None or strategy == "last":
            got = "seed_time" if seed_time is not None else "strategy='last'"
            raise ValueError(f"sample_neighbors: {got} says nothing without time or edge_time; give one of them")
        return None
    if time is not None and edge_time is not None:
        raise ValueError("sample_neighbors: got time and edge_time; give one of them")
    if weights is not None:
        raise ValueError("sample_neighbors: got weights and a time; neighbours are drawn by one of them")
    for kind, each in (time or {}).items():
        if kind not in sizes:
            raise ValueError(
                f"sample_neighbors: {_of('time', kind)}: there is no such node type, only {', '.join(sizes)}"
            )
        _check_integers(_of("time", kind), each, sizes[kind])
    check_per_edge("edge_time", edge_time, graphs, _INTEGERS)
    if edge_time is not None and seed_time is None:
        raise ValueError("sample_neighbors: edge_time wants seed_time, until when edges of each seed may be drawn")
    found = []
    for kind in seeds:
        given = (time if seed_time is None else seed_time) or {}
        if kind not in given:
            raise ValueError(f"sample_neighbors: seeds of type {kind!r} have no time; give seed_time for them")
        if seed_time is not None:
            _check_integers(_of("seed_time", kind), given[kind], len(seeds[kind]))
        found.append((given[kind] if seed_time is not None else given[kind][seeds[kind]]).to(torch.int64))
    return torch.cat(found)


def given_by_type(given: Mapping[Any, Tensor] | None, kind: Any) -> Tensor | None:
    return None if given is None else given.get(kind)


def _check_integers(name: str, given: Any, length: int | None = None) -> None:
    fits = _is_plain(given) and given.dtype in _INTEGERS and given.dim() == 1
    if not fits or length not in (None, given.shape[0]):
        shape = "a vector" if length is None else f"({length},)"
        raise ValueError(f"sample_neighbors: {name} must be {shape} of integers on the CPU, got {_shown(given)}")


def _is_plain(given: Any) -> bool:
    return isinstance(given, Tensor) and given.device.type == "cpu" and given.layout is torch.strided


def _of(name: str, kind: Any) -> str:
    return f"{name}[{kind!r}]" if kind and kind != ("", "", "") else name


def _shown(given: Any) -> str:
    if not isinstance(given, Tensor):
        return type(given).__name__
    return f"{str(given.dtype).removeprefix('torch.')} of shape {tuple(given.shape)} on {given.device}"
