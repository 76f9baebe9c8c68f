"""Coordinates as numbers to be looked up."""

from __future__ import annotations

import torch
from torch import Tensor

from .....structures.coordinates.packing import find
from ...conventions import AXES, convention

__all__ = ["sphash", "sphashquery"]

_BASIS, _PRIME = 14695981039346656037 - 2**64, 1099511628211
"""FNV-1a in 64 bits begins with the one and multiplies by the other; integers of PyTorch wrap around, as it wants."""


def sphash(coords: Tensor, offsets: Tensor | None = None) -> Tensor:
    """(N,) int64 hashes of rows; of rows moved by each offset (K, N). The numbers are those of torchsparse on a CPU.

    Args:
        coords: (N, 4) int32.
        offsets: None, or (K, 3) int32, which are added to the axes and not to the batch.
    """
    _check("coords", coords, 1 + AXES)
    if offsets is None:
        return _hash(coords)
    _check("offsets", offsets, AXES)
    rows = coords.repeat(len(offsets), 1, 1)
    rows[..., convention().axes] += offsets[:, None]
    return _hash(rows)


def sphashquery(queries: Tensor, references: Tensor) -> Tensor:
    """In the shape of ``queries``, int64: the first of the references that each equals, -1 where there is none.

    Args:
        queries: int64, of any shape.
        references: (N,) int64.
    """
    return find(queries.reshape(-1), references.reshape(-1)).view(queries.shape)


def _hash(rows: Tensor) -> Tensor:
    found = torch.full(rows.shape[:-1], _BASIS, dtype=torch.int64, device=rows.device)
    for column in rows.unbind(-1):
        found = (found ^ (column.long() & 0xFFFFFFFF)) * _PRIME
    return ((found >> 60) & 0xF) ^ (found & 0xFFFFFFFFFFFFFFF)


def _check(name: str, rows: Tensor, columns: int) -> None:
    if rows.dtype != torch.int32 or rows.dim() != 2 or rows.shape[1] != columns:
        raise ValueError(
            f"sphash: {name} must have shape (N, {columns}) and int32, got {tuple(rows.shape)} and {rows.dtype}"
        )
