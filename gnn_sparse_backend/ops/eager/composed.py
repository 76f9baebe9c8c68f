"""Products with composed matrices: by their coordinates, and as dense matrices where rows are tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...formats.composed.decomposition import Decomposition
from ...runtime.without_kernels import defines
from .messages import wide_of


def _dense(parts: Decomposition, values: Tensor) -> Tensor:
    """(rows, columns) the matrix of these values of its coordinates."""
    ends = parts.rows(), parts.indices.long()
    return values.new_zeros(parts.shape).index_put(ends, values)


@defines("composed_spmm")
def product(composed: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> Tensor:
    """The product with a matrix of packed values; of tokens, with its transpose, and a bias."""
    (packed, x, bias), (tokens,), parts = operands, attributes, composed.parts
    assert packed is not None and x is not None
    wide = wide_of(x)
    values = packed.index_select(-1, parts.place).to(wide)
    if tokens:
        found = x.to(wide) @ _dense(parts, values).T
        return (found if bias is None else found + bias.to(wide)).to(x.dtype)
    products = values.unsqueeze(-1) * x.index_select(-2, parts.indices.long()).to(wide)
    found = products.new_zeros((*products.shape[:-2], parts.shape[0], x.shape[-1]))
    return found.index_add(-2, parts.rows(), products).to(x.dtype)


@defines("composed_sddmm")
def dots(composed: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """(..., slots) dot products at the coordinates of the matrix, and 0 at padding."""
    (u, v), (tokens,), parts = operands, attributes, composed.parts
    rows, columns, wide = parts.rows(), parts.indices.long(), wide_of(u)
    if tokens:
        found = (u.to(wide).T @ v.to(wide))[rows, columns]
    else:
        found = (u.index_select(-2, rows).to(wide) * v.index_select(-2, columns).to(wide)).sum(-1)
    padded = torch.cat([found, found.new_zeros((*found.shape[:-1], 1))], -1)
    return padded.index_select(-1, parts.inverse).to(u.dtype)
