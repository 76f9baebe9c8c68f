"""From graphs with edge types of libraries and frameworks to index arrays, without importing the frameworks."""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .checks import as_index_vector, limits
from .sources import edge_index_arrays

__all__ = ["Parts", "dgl_parts", "edge_index_arrays", "offsets", "pyg_parts"]


@dataclass(frozen=True)
class Parts:
    """A heterogeneous graph: for each relation (source type, sources, destination type, destinations).

    source_types, destination_types: number of nodes of each type, in the order in which types stand.
    relations: (source type, name, destination type) of each.
    """

    source_types: dict[str, int]
    destination_types: dict[str, int]
    relations: tuple
    edges: list[tuple[str, Tensor, str, Tensor]]

    def joined(self) -> tuple[Tensor, Tensor, list[int]]:
        """(sources, destinations, edges of each relation), the nodes counted across their types."""
        first_source, first_destination = offsets(self.source_types), offsets(self.destination_types)
        empty = torch.empty(0, dtype=torch.int64, device=self.edges[0][1].device if self.edges else None)
        sources = [u.long() + first_source[kind] for kind, u, _, _ in self.edges]
        destinations = [v.long() + first_destination[kind] for _, _, kind, v in self.edges]
        return torch.cat([empty, *sources]), torch.cat([empty, *destinations]), [u.numel() for u in sources]

    def relation_numbers(self) -> Tensor:
        """(edges,) the relation of each edge, int64; made on the device of the edges, where a copy from the host would wait."""
        empty = torch.empty(0, dtype=torch.int64, device=self.edges[0][1].device if self.edges else None)
        return torch.cat([empty, *(empty.new_full((u.numel(),), number) for number, (_, u, _, _) in enumerate(self.edges))])


def dgl_parts(graph) -> Parts:
    """Of a DGL graph or block."""
    if not hasattr(graph, "canonical_etypes") or not hasattr(graph, "_graph"):
        raise TypeError(f"expected a DGL graph or block, got {type(graph).__name__}")
    relations = tuple(graph.canonical_etypes)
    edges = []
    for relation in relations:
        u, v = graph.edges(etype=relation, form="uv", order="eid")
        edges.append((relation[0], u, relation[2], v))
    return Parts({t: graph.num_src_nodes(t) for t in graph.srctypes}, {t: graph.num_dst_nodes(t) for t in graph.dsttypes},
                 relations, edges)


def pyg_parts(data) -> Parts:
    """Of a PyG ``HeteroData``."""
    sizes = {}
    for kind in data.node_types:
        count = data[kind].num_nodes
        if count is None:
            raise ValueError(f"the number of nodes of type {kind!r} is unknown; set data[{kind!r}].num_nodes")
        sizes[kind] = int(count)
    edges = []
    for relation in data.edge_types:
        index = data[relation].edge_index
        ends = [as_index_vector(f"edge_index[{i}] of {relation}", index[i]) for i in (0, 1)]
        edges.append((relation[0], ends[0], relation[2], ends[1]))
    found = limits(*(nodes for _, sources, _, destinations in edges for nodes in (sources, destinations)))
    ends = ((relation, what, kind) for relation in data.edge_types
            for what, kind in (("source", relation[0]), ("destination", relation[2])))
    for (relation, what, kind), (low, high) in zip(ends, found):
        if low < 0 or high >= sizes[kind]:
            raise ValueError(f"edge_index of {relation} has {what} {low if low < 0 else high}, but there are {sizes[kind]} nodes "
                             f"of type {kind!r}")
    return Parts(sizes, dict(sizes), tuple(data.edge_types), edges)


def offsets(sizes: dict[str, int]) -> dict[str, int]:
    """By type the number of its first node, where nodes of all types stand one type after the other."""
    first, found = 0, {}
    for kind, count in sizes.items():
        found[kind] = first
        first += count
    return found
