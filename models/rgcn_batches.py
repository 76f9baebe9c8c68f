"""Mini-batches of a relational graph: some nodes, and neighbours drawn at random around them (Hamilton et al., 2017).

Drawn here, alike for both frameworks and for a training with and without the backend: a batch depends on the seed, on
what it is for, on the epoch or pass, and on its place alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.relational_data import RelationalDataset

PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Batch:
    """A part of a graph. nodes: (n,) numbers in the whole graph, the ``seeds`` ones first that the batch was drawn for.

    edge_index: (2, e) places in ``nodes``. edge_type: (e,).
    """

    nodes: Tensor
    seeds: int
    edge_index: Tensor
    edge_type: Tensor

    def to(self, device: torch.device | str) -> Batch:
        """The same on a device."""
        return Batch(self.nodes.to(device), self.seeds, self.edge_index.to(device), self.edge_type.to(device))


class NeighbourSampler:
    """Draws up to ``fanout`` edges into every node of a round, without replacement, in ``rounds`` rounds."""

    def __init__(self, dataset: RelationalDataset, fanout: int, rounds: int):
        source, destination = dataset.edge_index.numpy()
        order = np.argsort(destination, kind="stable")
        self.source, self.kinds = source[order], dataset.edge_type.numpy()[order]
        self.indptr = np.searchsorted(destination[order], np.arange(dataset.num_nodes + 1))
        self.fanout, self.rounds = fanout, rounds

    def draw(self, seeds: np.ndarray, rng: np.random.Generator) -> Batch:
        """The batch of these distinct nodes."""
        place = np.full(len(self.indptr) - 1, -1)
        place[seeds] = np.arange(len(seeds))
        nodes, frontier, edges = [seeds], seeds, []
        for _ in range(self.rounds):
            edge, target = self._edges_into(frontier, rng)
            source = self.source[edge]
            frontier = np.unique(source[place[source] < 0])
            place[frontier] = np.arange(len(frontier)) + sum(map(len, nodes))
            nodes.append(frontier)
            edges.append((place[source], place[target], self.kinds[edge]))
        source, destination, kinds = map(np.concatenate, zip(*edges))
        return Batch(
            torch.from_numpy(np.concatenate(nodes)),
            len(seeds),
            torch.from_numpy(np.stack([source, destination])),
            torch.from_numpy(kinds),
        )

    def _edges_into(self, nodes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(edges, their destinations)."""
        degree = self.indptr[nodes + 1] - self.indptr[nodes]
        of_node = np.repeat(np.arange(len(nodes)), degree)
        first = np.cumsum(degree) - degree
        within = np.arange(len(of_node)) - first[of_node]
        # edges of a node in random order: those that come first are taken
        order = np.lexsort((rng.random(len(of_node)), of_node))
        taken = order[within < self.fanout]
        return self.indptr[nodes[of_node[taken]]] + within[taken], nodes[of_node[taken]]


def batches(
    dataset: RelationalDataset, config, graph_of_batch: Callable[[Batch], object]
) -> Callable[[str, int], Iterator[tuple]]:
    """By part of the nodes, one of ``PARTS``, and number of the epoch or pass: (graph, features, rows with labels,
    labels) of batches that together have every node of the part once, drawn on the host and moved to the
    configuration's device."""
    sampler = NeighbourSampler(dataset, config.fanout, config.layers)
    features = dataset.features.to(config.device)

    def of_part(part: str, number: int) -> Iterator[tuple]:
        rng = np.random.default_rng([config.seed, 2 + PARTS.index(part), number])
        order = rng.permutation(getattr(dataset, part).nonzero().flatten().numpy())
        for first in range(0, len(order), config.batch):
            seeds = order[first : first + config.batch]
            labels = dataset.labels[torch.from_numpy(seeds)].to(config.device)
            yield graph_of_batch(sampler.draw(seeds, rng).to(config.device)), features, slice(len(seeds)), labels

    return of_part
