"""What ``sample_neighbors`` gives."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from ..frozen import dataclass
from ..structures.graph import Graph

EdgeType: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True)
class Sample:
    """A sample of one graph. All tensors are int64.

    Attributes:
        nodes: (n,) node of the graph of each number in the sample, the seeds first.
        sources, destinations: (e,) the ends of its edges, as numbers in the sample, in the order of the destinations.
        edges: (e,) the edges, as the graph numbers them.
        trees: (n,) the seed that each node belongs to, by its place; None unless the sample is disjoint.
        num_nodes: of the seeds and of each layer, how many nodes it has met first.
        num_edges: of each layer, how many edges were drawn; of an induced sample, all of them.
    """

    nodes: Tensor
    sources: Tensor
    destinations: Tensor
    edges: Tensor
    trees: Tensor | None
    num_nodes: list[int]
    num_edges: list[int]

    @property
    def graph(self) -> Graph:
        """The sample as a ``Graph`` (n, n), without sorting: edge e of it is edge e here. A new one at each call."""
        size = self.nodes.shape[0]
        return _graph(self.sources, self.destinations, (size, size))


@dataclass(frozen=True)
class HeteroSample:
    """A sample of several graphs: as `Sample`, by type of node ("author") or of edge ("author", "writes", "paper")."""

    nodes: dict[str, Tensor]
    sources: dict[EdgeType, Tensor]
    destinations: dict[EdgeType, Tensor]
    edges: dict[EdgeType, Tensor]
    trees: dict[str, Tensor] | None
    num_nodes: dict[str, list[int]]
    num_edges: dict[EdgeType, list[int]]

    @property
    def graphs(self) -> dict[EdgeType, Graph]:
        """The sample as a ``Graph`` (destinations, sources) for each edge type."""
        return {
            kind: _graph(
                self.sources[kind],
                self.destinations[kind],
                (self.nodes[kind[2]].shape[0], self.nodes[kind[0]].shape[0]),
            )
            for kind in self.sources
        }


def _graph(sources: Tensor, destinations: Tensor, shape: tuple[int, int]) -> Graph:
    indptr = torch.zeros(shape[0] + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(destinations, minlength=shape[0]), 0, out=indptr[1:])
    return Graph.from_csr(indptr, sources, shape, trusted=True)
