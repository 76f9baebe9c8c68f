"""``in_degrees`` and ``out_degrees`` of all nodes, counted once for each graph.

DGL numbers all nodes, looks whether each of them is there, and sorts the edges to count them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ..structure import edges_of, structures_of


def make_degrees(original: Callable, end: int) -> Callable:
    """``DGLGraph.in_degrees`` (end 0) or ``out_degrees`` (1). With arguments a call is DGL's."""

    @functools.wraps(original)
    def degrees(self, *args, **kwargs):
        found = None if args or kwargs else _degrees(self._graph, end)
        return original(self, *args, **kwargs) if found is None else found

    return degrees


def _degrees(gidx, end: int) -> Tensor | None:
    """Return the degrees (nodes,) of destinations (end 0) or sources (1) in the type of the index; None where the graph
    has many edges, or several types of them.
    """
    edges = edges_of(gidx)
    if edges is None:
        return None
    structures, side = structures_of(gidx)
    known = structures.of(0).degrees
    at = end ^ side
    if known[at] is None:
        known[at] = torch.bincount((edges.row, edges.col)[end], minlength=edges.shape[end])
    return known[at].clone()
