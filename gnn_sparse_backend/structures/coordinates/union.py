"""The union of the sites of several tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from ...frozen import dataclass
from ..derived import Derived
from .packing import firsts, joined, numbered
from .pairs import _Sites
from .sites import Coordinates


@dataclass(frozen=True)
class _United(Derived[tuple["Coordinates | None", tuple[Tensor, ...]]]):
    """What `united` returns, with None for the sites where they are those that keep this fact."""

    others: tuple[_Sites, ...]

    def compute(self, first: Coordinates) -> tuple[Coordinates | None, tuple[Tensor, ...]]:
        every = first, *(other() for other in self.others)
        is_new, place = firsts(torch.cat(numbered(*(sites.rows for sites in every))))
        counts = [sites.rows.shape[0] for sites in every]
        _, *places = place.split(counts)
        batches = max(sites.batch_size for sites in every)
        if int(is_new.sum()) == counts[0] and batches == first.batch_size:
            return None, tuple(places)
        dtype = functools.reduce(torch.promote_types, (sites.rows.dtype for sites in every))
        bounds = joined(*(sites.bounds for sites in every))
        rows = torch.cat([sites.rows.to(dtype) for sites in every])[is_new]
        return Coordinates._make(rows, first.stride, batches, first.sizes, bounds), tuple(places)


def united(first: Coordinates, others: Sequence[Coordinates]) -> tuple[Coordinates, tuple[Tensor, ...]]:
    """(the sites of all, those of ``first`` before the ones that each other adds, in their order; the row of each site
    of the others). Made once. All are on grids of one stride and shape.
    """
    sites, places = first.derived(_United(tuple(_Sites(other) for other in others)))
    return first if sites is None else sites, places
