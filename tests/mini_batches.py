"""Mini-batches of a power-law graph for both frameworks, and what a thousand of them may cost."""
from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import psutil
import torch
from torch import Tensor

from gnn_sparse_backend.compiler.kernels import stats

NODES, EDGES, WIDTH, CLASSES = 4000, 60_000, 16, 5


def edges() -> Tensor:
    """(2, E), sources first; a few nodes have most of the edges."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(0, NODES, (EDGES,), generator=generator)
    return torch.stack([source, (torch.rand(EDGES, generator=generator) ** 3 * NODES).long()])


def features() -> Tensor:
    return torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(1))


def sampled(edge_index: Tensor, seeds: int, fanouts: tuple[int, ...], seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Without end ``(nodes, edge_index of these)`` as PyG's NeighborLoader gives them: seeds first, edges by rounds.

    (PyG's own needs a compiled library beside it.) Up to a fan-out of random in-edges of every node of a round.
    """
    generator = torch.Generator().manual_seed(seed)
    order = edge_index[1].argsort(stable=True)
    source = edge_index[0][order]
    indptr = torch.searchsorted(edge_index[1][order].contiguous(), torch.arange(NODES + 1))
    while True:
        nodes = torch.randperm(NODES, generator=generator)[:seeds]
        place = torch.full((NODES,), -1)
        place[nodes] = torch.arange(len(nodes))
        frontier, found = nodes, []
        for fanout in fanouts:
            degree = (indptr[frontier + 1] - indptr[frontier]).clamp(max=10_000)
            chosen = torch.rand(len(frontier), fanout, generator=generator)
            slots = (chosen * degree.unsqueeze(1)).long()
            real = (torch.arange(fanout) < degree.unsqueeze(1)).flatten()
            neighbours = source[(indptr[frontier].unsqueeze(1) + slots).flatten().clamp(max=EDGES - 1)][real]
            targets = frontier.repeat_interleave(fanout)[real]
            fresh = neighbours[place[neighbours] < 0].unique()
            place[fresh] = torch.arange(len(nodes), len(nodes) + len(fresh))
            nodes = torch.cat([nodes, fresh])
            found.append(torch.stack([place[neighbours], place[targets]]))
            frontier = fresh
        yield nodes, torch.cat(found, 1)


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
