"""Operators on a part, some of whose work is done while the halo travels.

Sums are an ordinary operator on the edges from own sources, and one on those from the halo, whose results are added.
Others run on the rows that need no halo first, and then on the rest, whose columns are [own | halo].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..frozen import dataclass
from ..ops.core.partitioned import PLACED

_AN_EDGE = "edge of part {} (graph.edge_ids)"


@dataclass(frozen=True)
class Half:
    """Some rows of a part: their structure, and the numbers within the part of them and of their edges."""

    graph: Any
    rows: Tensor
    edges: Tensor


def call(graph, operator: Callable, given: Mapping[str, Any]) -> Any:
    """The operator on the rows of this process."""
    name, places = operator.__name__, PLACED[operator]
    given = {key: x for key, x in given.items() if x is not graph}
    if given.get("norm_by") == "src":
        raise ValueError(
            f'{name}: norm_by="src" of a DistGraph would need edges of other processes; partition the transpose, '
            'and take norm_by="dst"'
        )
    if given.get("reduce") in places.sums:
        return _added(graph, operator, given)
    if graph.halves is None or not places.operands("u", given):
        return after_halo(graph, operator, given)
    return _by_rows(graph, operator, given)


def after_halo(graph, operator: Callable, given: dict[str, Any]) -> Any:
    """The operator on all rows, when the halo has arrived."""
    places = PLACED[operator]
    columns = places.operands("u", given)
    started = {key: graph.start(x, operator.__name__) for key, x in columns.items()}
    whole = {key: torch.cat([x, started[key].wait()]) for key, x in columns.items()}
    return operator(graph.local, **places.put(given, whole))


def _by_rows(graph, operator: Callable, given: dict[str, Any]) -> Tensor:
    """The operator on rows whose edges all come from own sources while the halo travels, then on the others."""
    name, places = operator.__name__, PLACED[operator]
    columns, rows, edges = (places.operands(place, given) for place in "uve")
    for key, x in rows.items():
        _check(graph, name, key, x, graph.shape[0], "destination of part {} (graph.row_ids)")
    for key, e in edges.items():
        _check(graph, name, key, e, graph.num_edges, _AN_EDGE)
    started = {key: graph.start(x, name) for key, x in columns.items()}
    inner, outer = graph.halves

    def half(of: Half, columns: dict[Any, Tensor]) -> Tensor:
        its = {key: x.index_select(0, of.rows) for key, x in rows.items()}
        its |= {key: e.index_select(0, of.edges) for key, e in edges.items()}
        return operator(of.graph, **places.put(given, columns | its))

    near = half(inner, {key: travelling.own for key, travelling in started.items()})
    far = half(outer, {key: torch.cat([x, started[key].wait()]) for key, x in columns.items()})
    numbers = [of.edges if places.of_edges else of.rows for of in (inner, outer)]
    return torch.cat([near, far]).index_select(0, torch.cat(numbers).argsort())


def _added(graph, operator: Callable, given: dict[str, Any]) -> Tensor:
    """Sums: those over own sources are computed while the halo travels."""
    name, places = operator.__name__, PLACED[operator]
    columns, edges = places.operands("u", given), places.operands("e", given)
    for key, e in edges.items():
        _check(graph, name, key, e, graph.num_edges, _AN_EDGE)
    divides, given = given["reduce"] == "mean", given | {"reduce": "sum"}
    started = {key: graph.start(x, name) for key, x in columns.items()}
    inner_edges = {key: e.index_select(0, graph.inner_edges) for key, e in edges.items()}
    outer_edges = {key: e.index_select(0, graph.outer_edges) for key, e in edges.items()}
    own = {key: travelling.own for key, travelling in started.items()}
    out = operator(graph.inner, **places.put(given, own | inner_edges))
    halo = {key: travelling.wait() for key, travelling in started.items()}
    out += operator(graph.outer, **places.put(given, halo | outer_edges))
    if divides:
        degrees = graph.local.in_degrees.clamp(min=1).to(out.dtype)
        out /= degrees.view(-1, *(1,) * (out.dim() - 1))
    return out


def _check(graph, name: str, key: Any, x: Any, count: int, of: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: operand {key} must be a torch tensor, got {type(x).__name__}")
    if x.dim() == 0 or x.shape[0] != count:
        raise ValueError(
            f"{name}: operand {key} must have {count} rows, one per {of.format(graph.part)}, got {tuple(x.shape)}"
        )
