"""Several maps of the same rows: products with a vector each, that are then summed, as both scores of an attention are.

Apart, the gradient of the rows is a pass for each map, and sums of these. Here it is one pass.
"""

from __future__ import annotations

from itertools import chain

from torch import Tensor

from ...compiler.cache.bounded import kept
from ..core.operator import Operator
from .calls import run_edge_map
from .message_op import MessageOp, message_op
from .operators import EDGE_MAP, edge_map, memo_of


def _run(graph, operands, attributes) -> tuple[Tensor, ...]:
    of, reduced = attributes
    x, *vectors = operands
    return tuple([run_edge_map(of, graph, (x, vector), reduced) for vector in vectors])


def _gradients(structure, attributes, saved, memo, needed, *cotangents: Tensor) -> list[Tensor | None]:
    x, *vectors = saved
    found: list[Tensor | None] = [None]
    if needed[0]:
        found = [edge_map(_sum_of_products(len(vectors)), structure, (), *chain(*zip(cotangents, vectors)))]
    for wanted, vector, cotangent in zip(needed[1:], vectors, cotangents):
        of_one = EDGE_MAP.gradients(structure, attributes, (x, vector), memo, (False, wanted), cotangent)
        found.append(of_one[1])
    return found


@kept
def _sum_of_products(count: int) -> MessageOp:
    message = "mul(x0, x1)"
    for number in range(1, count):
        message = f"add({message}, mul(x{2 * number}, x{2 * number + 1}))"
    return message_op(message, ("edge", "all") * count)


SHARED_MAPS = Operator(
    "shared_maps",
    _run,
    _gradients,
    saved=lambda attributes, operands, results: (operands, memo_of(attributes[0], operands[:2])),
)
"""Operands: rows, and vectors of one shape. Attributes: (the product of a row at an edge and what all edges share, for
each feature dimension whether to sum over it)."""
