"""Nodes of a graph in pairs, each with a neighbour that nobody else has (heavy-edge matching, as of Graclus)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..compiler.compile import compile_loops
from ..compiler.loops.matching import matching_function
from ..runtime.type_names import type_name


def matched(indptr: Tensor, indices: Tensor, weights: Tensor | None, order: Tensor) -> Tensor:
    """(nodes,) int64 the lower number of each node's pair, its own where it is alone.

    Args:
        indptr, indices: int64 on the host, edges by rows. They are trusted.
        weights: (edges,) float32, float64 or int64: a node takes the free neighbour of the largest, and none below 0.
            Without, it takes the first free one.
        order: (nodes,) int64, a permutation: whose turn it is.
    """
    found = torch.empty(indptr.shape[0] - 1, dtype=torch.int64)
    given = () if weights is None else (weights,)
    kernel = compile_loops(matching_function, "" if weights is None else type_name(weights.dtype))
    kernel.entry(found.shape[0], indices.shape[0], order, indptr, indices, *given, found)
    return found
