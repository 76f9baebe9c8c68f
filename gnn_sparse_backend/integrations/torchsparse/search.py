"""Which of the references a query equals: numbers by a sort and a search, rows by the number of their cell."""

from __future__ import annotations

import torch
from torch import Tensor

from ...structures.coordinates.packing import numbered


def find(queries: Tensor, references: Tensor) -> Tensor:
    """(queries,) int64 the first reference that each number equals, -1 where there is none."""
    if not references.numel():
        return torch.full_like(queries, -1, dtype=torch.int64)
    ascending, order = references.sort(stable=True)
    place = torch.searchsorted(ascending, queries).clamp_(max=references.numel() - 1)
    return torch.where(ascending[place] == queries, order[place], -1)


def find_rows(queries: Tensor, references: Tensor) -> Tensor:
    """(M,) int64 the first of (N, columns) rows that each of (M, columns) equals, -1 where there is none."""
    return find(*numbered(queries, references))
