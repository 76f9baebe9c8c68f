"""Division by in-degrees on the way back through a mean: of each message, within the kernel, or of rows, before it."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from ....runtime.type_names import DTYPES, accumulator_of
from ....structures.facts import InverseInDegrees
from ...core.traced import Traced, inverse_lengths

_FACTS = {dtype: InverseInDegrees(dtype) for dtype in map(accumulator_of, DTYPES.values())}
NARROW = 16
EDGES_PAY = 8
"""Rows of up to ``NARROW`` features are divided first where each of their numbers goes to this many messages or more.

A wider message costs little more for a factor, and a further pass over the rows costs more than that.
"""


def inverse_degrees(graph, dtype: torch.dtype, dims: int = 2) -> Tensor:
    """1 / in-degree of each row, or 1 without edges, in the type of sums of ``dtype``: (rows, 1, ...) of ``dims``
    dimensions.
    """
    wide = accumulator_of(dtype)
    scale = inverse_lengths(graph, wide) if isinstance(graph, Traced) else graph.derived(_FACTS[wide])
    return scale.view(-1, *(1,) * (dims - 1))


def divided_first(graph, x: Tensor) -> Tensor | None:
    """``x``, (rows, ...), over the in-degree of each row, where that pays and rounds as the kernel does; else, and
    while a program is traced, None."""
    if isinstance(graph, Traced):
        return None
    features = prod(x.shape[1:])
    if x.dtype not in (torch.float32, torch.float64) or features > NARROW:
        return None
    if graph.num_edges < EDGES_PAY * features * graph.shape[0]:
        return None
    return x * inverse_degrees(graph, x.dtype, x.dim())
