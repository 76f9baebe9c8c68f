"""Neighbour sampling (Hamilton et al., NeurIPS 2017, section 3.1) in plain PyTorch: batches as PyG's NeighborLoader
gives them.

PyG's own loader needs a compiled library beside it, which has no wheel for every version of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class NeighbourSampler:
    """Draws subgraphs around seeds.

    edge_index: (2, edges), sources first. num_nodes: of the graph.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int):
        order = edge_index[1].argsort(stable=True)
        self._source = edge_index[0][order]
        self._indptr = torch.searchsorted(edge_index[1][order].contiguous(), torch.arange(num_nodes + 1))
        self._place = torch.full((num_nodes,), -1)

    def sample(
        self, seeds: Tensor, fanouts: Sequence[int], generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """(nodes, edge_index of these): seeds first, then what each round found; edges by rounds.

        Each node of a round gets as many random in-edges as the fan-out says, with repetition, and as many as it has at
        most.
        """
        place, indptr = self._place, self._indptr
        place[seeds] = torch.arange(len(seeds))
        nodes, frontier, found = [seeds], seeds, []
        count = len(seeds)
        for fanout in fanouts:
            degree = indptr[frontier + 1] - indptr[frontier]
            chosen = torch.rand(len(frontier), fanout, generator=generator)
            slots = (chosen * degree.unsqueeze(1)).long()
            real = (torch.arange(fanout) < degree.unsqueeze(1)).flatten()
            neighbours = self._source[(indptr[frontier].unsqueeze(1) + slots).flatten()[real]]
            targets = frontier.repeat_interleave(fanout)[real]
            frontier = neighbours[place[neighbours] < 0].unique()
            place[frontier] = torch.arange(count, count + len(frontier))
            count += len(frontier)
            nodes.append(frontier)
            found.append(torch.stack([place[neighbours], place[targets]]))
        nodes = torch.cat(nodes)
        place[nodes] = -1
        return nodes, torch.cat(found, 1)
