"""Relational products over a few listed edges: all products of nodes and relations first, then one sum over the edges.

On a batch of molecules the product of every node with the matrix of every relation takes a GEMM some microseconds, and
an edge then adds the row of its source and relation. Nothing is made of the structure.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...compiler.cache.bounded import shared
from ...planner.cpu.listed import FEW, ROWS_PER_EDGE
from ...structures.csr import EdgeList
from ..message.flat import FLOATS, FlatAggregate
from ..message.message_op import SUM_OF_COLUMNS, WEIGHTED_SUM_OF_COLUMNS

_flats = shared("relational sums over few edges", 256)


def few_relations(
    x: Tensor,
    weight: Tensor | tuple[Tensor, Tensor],
    row: Tensor,
    col: Tensor,
    relation: Tensor,
    shape: tuple[int, int],
    reduce: str,
    scale: Tensor | None = None,
) -> Tensor | None:
    """The sum over the edges into each row of ``x[col] @ W[relation]``, (rows, F_out); None where that is not the way.

    Args:
        x: (columns, F_in). weight: (relations, F_in, F_out), or coefficients (relations, bases) and (bases, F_in,
            F_out).
        row, col, relation: (edges,) of int64, compact. shape: (rows, columns).
        reduce: "sum", or "mean" of the edges of each relation apart.
        scale: (edges, 1), of a sum.

    Raises:
        OutOfRange: an end of an edge is. None is returned where a relation is.
    """
    bases = weight[1] if isinstance(weight, tuple) else weight
    count = weight[0].shape[0] if isinstance(weight, tuple) else bases.shape[0]
    edges, wide = row.shape[0], bases.shape[-1]
    if bases.dim() != 3 or x.dtype not in FLOATS or bases.dtype is not x.dtype or not edges * wide:
        return None
    if edges * wide > FEW.features or shape[1] * count > ROWS_PER_EDGE * edges or not all(shape):
        return None
    least, most = torch.aminmax(relation)
    if least < 0 or most >= count:
        return None
    if isinstance(weight, tuple):
        bases = (weight[0] @ bases.flatten(1)).view(count, *bases.shape[1:])
    made = (x @ bases.transpose(0, 1).flatten(1)).view(shape[1] * count, wide)
    if reduce == "mean":
        scale = _scale(row, relation, count, x.dtype)
        if scale is None:
            return None
    operands = (made,) if scale is None else (made, scale)
    key = x.dtype, wide, scale is None
    flat = _flats.get(key)
    if flat is None:
        of = SUM_OF_COLUMNS if scale is None else WEIGHTED_SUM_OF_COLUMNS
        flat = _flats.keep(key, FlatAggregate.made(of, [each.detach()[:1] for each in operands]))
    return flat(EdgeList(row, torch.add(relation, col, alpha=count), (shape[0], shape[1] * count)), operands)


def _scale(row: Tensor, relation: Tensor, count: int, dtype: torch.dtype) -> Tensor | None:
    """(edges, 1): 1 over the number of edges of the edge's row and relation; None where a row is out of range."""
    pair = torch.add(relation, row, alpha=count)
    try:
        return torch.bincount(pair)[pair].to(dtype).reciprocal_().unsqueeze_(1)
    except RuntimeError:
        return None
