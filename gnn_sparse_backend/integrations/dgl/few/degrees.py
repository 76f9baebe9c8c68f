"""``in_degrees`` and ``out_degrees`` of all nodes, counted once for each graph.

DGL numbers all nodes, looks whether each of them is there, and sorts the edges to count them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from dgl.base import ALL, is_all
from torch import Tensor

from ..structure import edges_of, structures_of


def make_in_degrees(original: Callable) -> Callable:
    """``DGLGraph.in_degrees``."""

    @functools.wraps(original)
    def in_degrees(self, v=ALL, etype=None):
        found = _degrees(self._graph, 0) if etype is None and is_all(v) else None
        return original(self, v, etype) if found is None else found

    return in_degrees


def make_out_degrees(original: Callable) -> Callable:
    """``DGLGraph.out_degrees``."""

    @functools.wraps(original)
    def out_degrees(self, u=ALL, etype=None):
        found = _degrees(self._graph, 1) if etype is None and is_all(u) else None
        return original(self, u, etype) if found is None else found

    return out_degrees


def _degrees(gidx, end: int) -> Tensor | None:
    """(nodes,) of the index's own type; None of a graph that is not of few edges of one type. end: 0 of destinations,
    1 of sources."""
    edges = edges_of(gidx)
    if edges is None:
        return None
    structures, side = structures_of(gidx)
    known = structures.of(0).degrees
    at = end ^ side
    if known[at] is None:
        known[at] = torch.bincount((edges.row, edges.col)[end], minlength=edges.shape[end])
    return known[at].clone()
