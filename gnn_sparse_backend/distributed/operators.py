"""Operators on a part, some of whose work is done while the halo travels.

Sums are an ordinary operator on the edges from own sources, and one on those from the halo, whose results are added.
Others run on the rows that need no halo first, and then on the rest, whose columns are [own | halo].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_SOURCES = {
    # operator: its operands that have a row for each source
    "spmm": ("x",),
    "sddmm": ("v",),
    "attention": ("key", "value"),
    "gat_attention": ("src_scores", "value"),
    "gatv2_attention": ("x_src", "value"),
    "rgms": ("x",),
    "edge_softmax": (),
    "aggregate": (),  # by their places
}
_DESTINATIONS = {"sddmm": "u", "attention": "query", "gat_attention": "dst_scores", "gatv2_attention": "x_dst"}
_EDGES = {
    "spmm": ("weight",),
    "attention": ("edge_weight",),
    "gat_attention": ("edge_scores", "edge_weight"),
    "gatv2_attention": ("edge_weight",),
    "rgms": ("edge_weight",),
}
_OF_EDGES = ("sddmm", "edge_softmax")
"""Operators whose results have a row for each edge."""
_ADDED = {"spmm": ("sum", "mean"), "aggregate": ("sum", "mean"), "rgms": ("sum",)}


_AN_EDGE = "edge of part {} (graph.edge_ids)"


@dataclass(frozen=True)
class Half:
    """Some rows of a part: their structure, and the numbers within the part of them and of their edges."""

    graph: Any
    rows: Tensor
    edges: Tensor


def call(graph, operator: Callable, given: dict[str, Any]) -> Any:
    """The operator on the rows of this process."""
    name = operator.__name__
    if name == "edge_softmax" and given["norm_by"] == "src":
        raise ValueError(
            'edge_softmax: norm_by="src" of a DistGraph would need edges of other processes; partition the transpose, '
            'and take norm_by="dst"'
        )
    if name == "rgms" and not isinstance(given["x"], Tensor):
        raise TypeError(f"rgms: x on a DistGraph must be a tensor of all sources, got {type(given['x']).__name__}")
    if given.get("reduce") in _ADDED.get(name, ()):
        return _added(graph, operator, given)
    if graph.halves is None or not _columns(name, given):
        return after_halo(graph, operator, given)
    return _by_rows(graph, operator, given)


def after_halo(graph, operator: Callable, given: dict[str, Any]) -> Any:
    """The operator on all rows, when the halo has arrived."""
    columns = _columns(operator.__name__, given)
    started = {key: graph.start(x, operator.__name__) for key, x in columns.items()}
    whole = {key: torch.cat([x, started[key].wait()]) for key, x in columns.items()}
    return operator(graph.local, **_put(given, whole))


def _by_rows(graph, operator: Callable, given: dict[str, Any]) -> Tensor:
    """The operator on rows whose edges all come from own sources while the halo travels, then on the others."""
    name, columns = operator.__name__, _columns(operator.__name__, given)
    rows, edges = _destinations(name, given), _edges(name, given)
    for key, x in rows.items():
        _check(graph, name, key, x, graph.shape[0], "destination of part {} (graph.row_ids)")
    for key, e in edges.items():
        _check(graph, name, key, e, graph.num_edges, _AN_EDGE)
    started = {key: graph.start(x, name) for key, x in columns.items()}
    inner, outer = graph.halves

    def half(of: Half, columns: dict[Any, Tensor]) -> Tensor:
        its = {key: x.index_select(0, of.rows) for key, x in rows.items()}
        its |= {key: e.index_select(0, of.edges) for key, e in edges.items()}
        return operator(of.graph, **_put(given, columns | its))

    near = half(inner, {key: travelling.own for key, travelling in started.items()})
    far = half(outer, {key: torch.cat([x, started[key].wait()]) for key, x in columns.items()})
    places = [of.edges if name in _OF_EDGES else of.rows for of in (inner, outer)]
    return torch.cat([near, far]).index_select(0, torch.cat(places).argsort())


def _added(graph, operator: Callable, given: dict[str, Any]) -> Tensor:
    """Sums: those over own sources are computed while the halo travels."""
    name, columns, edges = operator.__name__, _columns(operator.__name__, given), _edges(operator.__name__, given)
    for key, e in edges.items():
        _check(graph, name, key, e, graph.num_edges, _AN_EDGE)
    divides, given = given["reduce"] == "mean", given | {"reduce": "sum"}
    started = {key: graph.start(x, name) for key, x in columns.items()}
    inner_edges = {key: e.index_select(0, graph.inner_edges) for key, e in edges.items()}
    outer_edges = {key: e.index_select(0, graph.outer_edges) for key, e in edges.items()}
    own = {key: travelling.own for key, travelling in started.items()}
    out = operator(graph.inner, **_put(given, own | inner_edges))
    halo = {key: travelling.wait() for key, travelling in started.items()}
    out += operator(graph.outer, **_put(given, halo | outer_edges))
    if divides:
        degrees = graph.local.in_degrees.clamp(min=1).to(out.dtype)
        out /= degrees.view(-1, *(1,) * (out.dim() - 1))
    return out


def _columns(name: str, given: dict[str, Any]) -> dict[Any, Tensor]:
    """Operands of sources, by their names, or by their numbers among the operands of a message."""
    if name == "aggregate":
        return {at: x for at, (place, x) in enumerate(given["operands"]) if place == "u"}
    return {key: given[key] for key in _SOURCES[name] if given[key] is not None}


def _destinations(name: str, given: dict[str, Any]) -> dict[Any, Tensor]:
    if name == "aggregate":
        return {at: x for at, (place, x) in enumerate(given["operands"]) if place == "v"}
    return {_DESTINATIONS[name]: given[_DESTINATIONS[name]]} if name in _DESTINATIONS else {}


def _edges(name: str, given: dict[str, Any]) -> dict[Any, Tensor]:
    if name == "aggregate":
        return {at: x for at, (place, x) in enumerate(given["operands"]) if place == "e"}
    return {key: given[key] for key in _EDGES.get(name, ()) if given[key] is not None}


def _check(graph, name: str, key: Any, x: Any, count: int, of: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: operand {key} must be a torch tensor, got {type(x).__name__}")
    if x.dim() == 0 or x.shape[0] != count:
        raise ValueError(
            f"{name}: operand {key} must have {count} rows, one per {of.format(graph.part)}, got {tuple(x.shape)}"
        )


def _put(given: dict[str, Any], changed: dict[Any, Tensor]) -> dict[str, Any]:
    """The arguments with some operands in the place of others."""
    if "operands" not in given:
        return given | changed
    operands = [(place, changed.get(at, x)) for at, (place, x) in enumerate(given["operands"])]
    return given | {"operands": operands}
