"""Batches as data loaders make them: molecules side by side, and a sampled block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NODES, BONDS = 22, 27
"""The atoms and the bonds of one molecule. A bond is two edges."""

SIZES = {"1 molecule": 1, "32 molecules": 32, "128 molecules": 128}
BLOCK = "block"
DESTINATIONS, FANOUT = 512, 10
"""The seeds of a sampled block, and the neighbours of each seed. Its sources are both."""


@dataclass(frozen=True)
class Batch:
    """A graph as a loader hands it over.

    edge_index: (2, edges), sources and destinations. sizes: (sources, destinations). x: (sources, width). edge_attr:
    (edges, width). relation: (edges,). batch: (sources,) the molecule of each node; None of a block. count: molecules.
    """

    edge_index: Tensor
    sizes: tuple[int, int]
    x: Tensor
    edge_attr: Tensor
    relation: Tensor
    batch: Tensor | None
    count: int


def make(size: str, width: int, relations: int, generator: torch.Generator) -> Batch:
    """A batch of a size of ``SIZES``, or a block."""
    batch, count = None, 1
    if size == BLOCK:
        sources = DESTINATIONS * 6
        destination = torch.arange(DESTINATIONS).repeat_interleave(FANOUT)
        source = torch.randint(sources, (DESTINATIONS * FANOUT,), generator=generator)
        edges, sizes = torch.stack((source, destination)), (sources, DESTINATIONS)
    else:
        count = SIZES[size]
        # a chain of atoms, closed to rings here and there
        chain = torch.arange(NODES - 1)
        rings = torch.randint(NODES, (count, 2, BONDS - NODES + 1), generator=generator)
        chains = torch.stack((chain, chain + 1)).expand(count, 2, NODES - 1)
        bonds = torch.cat((chains, rings), 2) + NODES * torch.arange(count).view(-1, 1, 1)
        bonds = bonds.permute(1, 0, 2).reshape(2, -1)
        edges = torch.stack((bonds, bonds.flip(0)), 2).reshape(2, -1)
        sizes = (count * NODES,) * 2
        batch = torch.arange(count).repeat_interleave(NODES)
    x = torch.randn(sizes[0], width, generator=generator)
    number = edges.shape[1]
    attributes = torch.randn(number, width, generator=generator)
    relation = torch.randint(relations, (number,), generator=generator)
    return Batch(edges.contiguous(), sizes, x, attributes, relation, batch, count)
