"""Random walks over the edges of a graph, as of node2vec."""

from __future__ import annotations

import torch
from torch import Tensor

from ..compiler.compile import compile_loops
from ..compiler.loops.walks import walks_function
from .draws import stream_of


def walks(
    indptr: Tensor, indices: Tensor, start: Tensor, length: int, seed: int, p: float = 1.0, q: float = 1.0
) -> tuple[Tensor, Tensor]:
    """(visited, passed): (walks, length + 1) nodes, of which the first are ``start``, and (walks, length) edges by
    their place in ``indices``, -1 where a node has none, which is visited again. What is drawn depends on no thread.

    Args:
        indptr, indices: int64 on the host, edges by rows, in each of which neighbours ascend unless p and q are 1. They
            are trusted.
        start: (walks,) int64 nodes.
        p, q: from the second step on, the chance of a neighbour is as 1/p where the walk came from there, as 1 where
            that has an edge to it, and as 1/q elsewhere (Grover and Leskovec, 2016).
    """
    visited = torch.empty(start.shape[0], length + 1, dtype=torch.int64)
    passed = torch.empty(start.shape[0], length, dtype=torch.int64)
    biased = (p, q) != (1.0, 1.0)
    chances = 1 / p, 1.0, 1 / q
    given = tuple(chance / max(chances) for chance in chances) if biased else ()
    sizes = start.shape[0], length, indptr.shape[0] - 1, indices.shape[0], stream_of(seed)
    compile_loops(walks_function, biased).entry(
        *sizes, *given, start, indptr, indices, visited.view(-1), passed.view(-1)
    )
    return visited, passed
