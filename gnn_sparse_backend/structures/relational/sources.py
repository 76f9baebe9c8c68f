"""From graphs with edge types of libraries and frameworks to index arrays, without importing the frameworks."""

from __future__ import annotations

import torch
from torch import Tensor

from ...frozen import dataclass
from ..checks import as_index_vector, check_ranges


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
        """(edges,) the relation of each edge, int64; made on the device of the edges, where a copy from the host would
        wait.
        """
        empty = torch.empty(0, dtype=torch.int64, device=self.edges[0][1].device if self.edges else None)
        return torch.cat(
            [empty, *(empty.new_full((u.numel(),), number) for number, (_, u, _, _) in enumerate(self.edges))]
        )


def dgl_parts(graph) -> Parts:
    """Parts of a DGL graph or block."""
    if not hasattr(graph, "canonical_etypes") or not hasattr(graph, "_graph"):
        raise TypeError(f"expected a DGL graph or block, got {type(graph).__name__}")
    relations = tuple(graph.canonical_etypes)
    edges = []
    for relation in relations:
        u, v = graph.edges(etype=relation, form="uv", order="eid")
        edges.append((relation[0], u, relation[2], v))
    sources = {t: graph.num_src_nodes(t) for t in graph.srctypes}
    destinations = {t: graph.num_dst_nodes(t) for t in graph.dsttypes}
    return Parts(sources, destinations, relations, edges)


def pyg_parts(data) -> Parts:
    """Parts of a PyG ``HeteroData``, all of whose edge types have an ``edge_index``."""
    for relation in data.edge_types:
        if data[relation].get("edge_index") is None:
            kept = "; it has adj_t: ToSparseTensor(remove_edge_index=False) keeps both" * ("adj_t" in data[relation])
            raise ValueError(
                f"relations are read from edge_index, which {relation} of this {type(data).__name__} has not got{kept}"
            )
    sizes = {}
    for kind in data.node_types:
        count = data[kind].num_nodes
        if count is None:
            raise ValueError(f"the number of nodes of type {kind!r} is unknown; set data[{kind!r}].num_nodes")
        sizes[kind] = int(count)
    edges, checked = [], []
    for relation in data.edge_types:
        index = data[relation].edge_index
        names = [f"data[{relation}].edge_index[{i}]" for i in (0, 1)]
        ends = [as_index_vector(name, index[i]) for i, name in enumerate(names)]
        kinds = relation[0], relation[2]
        checked += [
            (name, nodes, sizes[kind], f"nodes of type {kind!r}") for name, kind, nodes in zip(names, kinds, ends)
        ]
        edges.append((kinds[0], ends[0], kinds[1], ends[1]))
    check_ranges(*checked)  # of all at once: a GPU is waited for at each look
    return Parts(sizes, dict(sizes), tuple(data.edge_types), edges)


def offsets(sizes: dict[str, int]) -> dict[str, int]:
    """The number of the first node of each type, where nodes of all types stand one type after the other."""
    first, found = 0, {}
    for kind, count in sizes.items():
        found[kind] = first
        first += count
    return found
