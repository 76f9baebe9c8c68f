"""Mini-batches of a power-law graph for both frameworks, and what a thousand of them may cost."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import psutil
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import stats
from models.neighbours import NeighbourSampler

NODES, EDGES, WIDTH, CLASSES = 4000, 60_000, 16, 5


def edges() -> Tensor:
    """(2, E), sources first; a few nodes have most of the edges."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(0, NODES, (EDGES,), generator=generator)
    return torch.stack([source, (torch.rand(EDGES, generator=generator) ** 3 * NODES).long()])


def features() -> Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))


def sampled(edge_index: Tensor, seeds: int, fanouts: tuple[int, ...], seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Without end ``(nodes, edge_index of these)`` around so many seeds."""
    generator = torch.Generator().manual_seed(seed)
    sampler = NeighbourSampler(edge_index, NODES)
    while True:
        yield sampler.sample(torch.randperm(NODES, generator=generator)[:seeds], fanouts, generator)


def check_steady(step: Callable[[], object], first: int = 30, then: int = 1000) -> None:
    """After ``first`` steps nothing is compiled or loaded, and ``then`` steps keep no memory."""
    for _ in range(first):
        step()
    gc.collect()
    before, resident = stats(), psutil.Process().memory_info().rss
    for _ in range(then):
        step()
    gc.collect()
    assert (stats().compiles, stats().disk_loads) == (before.compiles, before.disk_loads)
    grown = psutil.Process().memory_info().rss - resident
    assert grown < 32 << 20, f"{grown / 2**20:.0f} MiB more after {then} batches"


def check_ours(framework: str, calls: int, but: tuple[str, ...] = ()) -> None:
    """So many calls at least ran on our kernels since the counts were reset, and none on the framework's own, ``but``
    for these reasons.
    """
    rows = gsb.status().to_dict()["calls"].get(framework, {})
    assert sum(row["ours"] for row in rows.values()) >= calls, rows
    assert {reason for row in rows.values() for reason in row["fallbacks"]} <= set(but), rows
