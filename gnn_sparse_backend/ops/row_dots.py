"""Dot products of every row of features with one vector per head, without the product of all features."""
from __future__ import annotations

import functools

import torch
from torch import Tensor

from .form import form
from .graph import Graph
from .message_autograd import edge_map

_DOT = form("mul(x0, x1)", ("edge", "all"))
_LAST = (False, True)
# Rows whose terms of the vector's gradient are summed together before the sums are.
BLOCK = 1024


def row_dots(x: Tensor, vector: Tensor) -> Tensor:
    """``(x * vector).sum(-1)``, with gradients to both.

    x: (n, H, D). vector: (H, D), of the same type. Returns (n, H), contiguous. One thread's additions for the gradient
    of ``vector`` are of BLOCK rows, in their order: the same bits at every run.
    """
    return edge_map(_DOT, _rows(x.shape[0]), _LAST, x, vector).squeeze(-1)


@functools.lru_cache(maxsize=64)
def _rows(count: int) -> Graph:
    """The rows as edges of a graph whose own rows are the blocks."""
    blocks = -(-count // BLOCK)
    bounds = torch.arange(blocks + 1, dtype=torch.int64).mul_(BLOCK).clamp_(max=count)
    return Graph.from_csr(bounds, torch.zeros(count, dtype=torch.int64), (blocks, 1))
