"""Sites in a program that is traced: what layers ask of ``Coordinates``, answered without knowing any."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops.convolution.traced_places import traced_union
from ...ops.convolution.traced_sites import MAP_OF_SITES, traced_batches, traced_sites
from ...ops.core.traced import Traced
from ...structures.coordinates import Coordinates, Window
from ...structures.coordinates.sites import coarser, finer
from ...structures.coordinates.written import (
    GENERATED,
    OCCUPIED,
    REACHED,
    Written,
    sites_at,
    write_grid,
    write_window,
)


class TracedSites:
    """Sites by the rows that they began as, and how they followed from those.

    Attributes:
        begin: (N, 1 + D) these rows. how: how the sites follow. rows: (M, 1 + D) the sites. Others: as of
        ``Coordinates``.
    """

    def __init__(self, begin: Tensor, rows: Tensor, batch_size: Any, how: Written, stride: Any, sizes: Any) -> None:
        self.begin, self.rows, self.batch_size, self.how = begin, rows, batch_size, how
        self.stride, self.sizes = stride, sizes

    @property
    def dim(self) -> int:
        return len(self.stride)

    @property
    def device(self) -> Any:
        return self.rows.device

    def reached(self, window: Window) -> TracedSites:
        """`Coordinates.reached`."""
        sizes = None if self.sizes is None else window.coarse_sizes(self.sizes)
        return self._then((REACHED, *write_window(window)), coarser(self, window.stride), sizes)

    def occupied(self, stride: tuple[int, ...]) -> TracedSites:
        """`Coordinates.occupied`."""
        sizes = None if self.sizes is None else tuple(-(-n // s) for n, s in zip(self.sizes, stride))
        return self._then((OCCUPIED, *stride), coarser(self, stride), sizes)

    def generated(self, window: Window, centred: bool) -> TracedSites:
        """`Coordinates.generated`."""
        sizes = None if self.sizes is None else window.fine_sizes(self.sizes, centred)
        return self._then((GENERATED, int(centred), *write_window(window)), finer(self, window.stride), sizes)

    def _then(self, step: Written, stride: Any, sizes: Any) -> TracedSites:
        how = (*self.how, *step)
        return TracedSites(
            self.begin, traced_sites(self.begin, self.batch_size, how), self.batch_size, how, stride, sizes
        )

    def map_from(self, fine: TracedSites, window: Window) -> Traced:
        """What stands for the kernel map from finer sites to these."""
        counts = self.rows.shape[0], fine.rows.shape[0]
        ends = fine.begin, self.begin, self.batch_size, fine.how, self.how
        return Traced((*ends, write_window(window), *counts), kind=MAP_OF_SITES)

    def same_as(self, other: TracedSites) -> bool:
        """Whether both are the same sites for all that is known while a program is traced."""
        return self.begin is other.begin and self.how == other.how

    def live(self) -> Coordinates:
        """The sites themselves, behind the program."""
        return sites_at(self.begin, self.batch_size, self.how)

    def __repr__(self) -> str:
        return f"Coordinates(traced, stride {self.stride})"


def traced(sites: Any) -> TracedSites:
    """What stands for sites in a program."""
    if isinstance(sites, TracedSites):
        return sites
    return TracedSites(
        sites.rows, sites.rows, sites.batch_size, write_grid(sites.stride, sites.sizes), sites.stride, sites.sizes
    )


def check_traced_sites(what: str, sites: list[TracedSites]) -> None:
    """All are the same sites in the same order, for all that a program can know."""
    for other in sites[1:]:
        if not sites[0].same_as(other):
            raise ValueError(
                f"{what} wants tensors on the same sites, which a compiled program knows of those that came from one "
                "tensor by the same layers; call it on others outside of the program"
            )


def rows_of_batches(pooled: Tensor, sites: Any) -> Tensor:
    """A row for each batch, at all sites of it."""
    return pooled.index_select(0, sites.rows[:, 0].long())


def reduced_by_batch(features: Tensor, sites: Any, reduce: str) -> Tensor:
    """The rows of each batch reduced, where nobody knows in which order they are."""
    batch = sites.rows[:, 0].long()[:, None].expand_as(features)
    zeros = features.new_zeros(sites.batch_size, features.shape[1])
    how = {"sum": "sum", "mean": "mean", "max": "amax"}[reduce]
    return zeros.scatter_reduce(0, batch, features, how, include_self=False)


def origins(sites: Any) -> TracedSites:
    """A site for each batch, at the origin."""
    batch = torch.arange(sites.batch_size, dtype=sites.rows.dtype, device=sites.rows.device)
    rows = F.pad(batch[:, None], (0, len(sites.stride)))
    return traced_rows(rows, sites.stride, sites.batch_size, None)


def united(sites: list[TracedSites]) -> tuple[TracedSites, Sequence[Tensor]]:
    """The sites of all, and for each which of them its own are."""
    first, batches = sites[0], functools.reduce(torch.sym_max, (each.batch_size for each in sites))
    rows, places = traced_union([each.rows for each in sites], batches, write_grid(first.stride, first.sizes))
    return traced_rows(rows, first.stride, batches, first.sizes), places


def traced_rows(rows: Tensor, stride: tuple[int, ...], batch_size: Any, sizes: Any) -> TracedSites:
    """What stands for the sites of rows that a program has; they are checked when it runs."""
    batches = traced_batches(rows) if batch_size is None else batch_size
    return TracedSites(rows, rows, batches, write_grid(stride, sizes), stride, sizes)
