"""Which of the references a query equals: numbers by a sort and a search, rows by the number of their cell."""

from __future__ import annotations

import torch
from torch import Tensor

from ...structures.coordinates.packing import Bounds, Packing, joined


def find(queries: Tensor, references: Tensor) -> Tensor:
    """(queries,) int64 the first reference that each number equals, -1 where there is none."""
    if not references.numel():
        return torch.full_like(queries, -1, dtype=torch.int64)
    ascending, order = references.sort(stable=True)
    place = torch.searchsorted(ascending, queries).clamp_(max=references.numel() - 1)
    return torch.where(ascending[place] == queries, order[place], -1)


def find_rows(queries: Tensor, references: Tensor) -> Tensor:
    """(M,) int64 the first of (N, columns) rows that each of (M, columns) equals, -1 where there is none."""
    packing = Packing(joined(_bounds(queries), _bounds(references)))
    return find(packing.pack(queries), packing.pack(references))


def _bounds(rows: Tensor) -> Bounds:
    if not rows.shape[0]:
        return ((0, -1),) * rows.shape[1]
    low, high = torch.stack(torch.aminmax(rows, dim=0)).tolist()
    return tuple(zip(low, high))
