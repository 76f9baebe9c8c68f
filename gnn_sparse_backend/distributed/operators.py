"""Operators on a part: an ordinary operator on columns [own | halo], or one on each, whose results are added."""

from __future__ import annotations

from collections.abc import Callable
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
_ADDED = {"spmm": ("sum", "mean"), "aggregate": ("sum", "mean"), "rgms": ("sum",)}


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
    columns = _columns(name, given)
    started = {key: graph.start(x, name) for key, x in columns.items()}
    whole = {key: torch.cat([x, started[key].wait()]) for key, x in columns.items()}
    return operator(graph.local, **_put(given, whole))


def _added(graph, operator: Callable, given: dict[str, Any]) -> Tensor:
    """Sums: those over own sources are computed while the halo travels."""
    name, columns, edges = operator.__name__, _columns(operator.__name__, given), _edges(operator.__name__, given)
    for key, e in edges.items():
        _check_edges(graph, name, key, e)
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


def _edges(name: str, given: dict[str, Any]) -> dict[Any, Tensor]:
    if name == "aggregate":
        return {at: x for at, (place, x) in enumerate(given["operands"]) if place == "e"}
    weight = "edge_weight" if name == "rgms" else "weight"
    return {} if given[weight] is None else {weight: given[weight]}


def _check_edges(graph, name: str, key: Any, e: Any) -> None:
    if not isinstance(e, Tensor):
        raise TypeError(f"{name}: operand {key} must be a torch tensor, got {type(e).__name__}")
    if e.dim() == 0 or e.shape[0] != graph.num_edges:
        raise ValueError(
            f"{name}: operand {key} must have {graph.num_edges} rows, one per edge of part {graph.part} "
            f"(graph.edge_ids), got {tuple(e.shape)}"
        )


def _put(given: dict[str, Any], changed: dict[Any, Tensor]) -> dict[str, Any]:
    """The arguments with some operands in the place of others."""
    if "operands" not in given:
        return given | changed
    operands = [(place, changed.get(at, x)) for at, (place, x) in enumerate(given["operands"])]
    return given | {"operands": operands}
