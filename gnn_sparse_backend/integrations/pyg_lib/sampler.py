"""``pyg_lib.sampler``: neighbours, subgraphs and walks of a graph by rows.

Times, several types of nodes and weights are what ``gsb.sample_neighbors`` takes, which PyG's loaders come by.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...formats.counts import prefix_sums
from ...sampling.draws import Relation
from ...sampling.layers import sample_layers
from ...sampling.seeds import drawn_seed
from ...sampling.walks import walks
from ..core.substitutes.scripted import counted
from ..torch_sparse.sampling import induced

_counted = counted("pyg_lib")


@_counted
def neighbor_sample(
    rowptr: Tensor,
    col: Tensor,
    seed: Tensor,
    num_neighbors: list[int],
    node_time: Tensor | None = None,
    edge_time: Tensor | None = None,
    seed_time: Tensor | None = None,
    edge_weight: Tensor | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, list[int], list[int]]:
    """Return (rows, columns, nodes, edges, nodes by layer, edges by layer) of a sample: ``num_neighbors[0]`` neighbours
    of each seed, and so on, all of them where that is below 0.

    Args:
        csc: rows are destinations, and the two first results change places.
        replace: draw an edge more than once if it comes so. directed: only drawn edges, else all between the nodes.
        disjoint: a tree of its own for each seed; nodes are (n, 2) then, the tree first.
        edge_weight: (E,) by which edges are drawn.
        node_time, edge_time, seed_time, temporal_strategy: draw what is not after the seed, or the last of it.
    """
    nodes = rowptr.numel() - 1
    times = node_time if edge_time is None else edge_time
    latest = None
    if times is not None:
        if seed_time is None and node_time is None:
            raise ValueError("Seed time needs to be specified")
        latest = (node_time[seed] if seed_time is None else seed_time).long()
        times = times.long().contiguous()
    relation = Relation("", "", rowptr, col, nodes, edge_weight, times, edge_time is not None)
    layers = sample_layers(
        [relation],
        {"": nodes},
        {"": seed},
        [num_neighbors],
        drawn_seed(),
        replace=replace,
        disjoint=disjoint,
        latest=latest,
        last=temporal_strategy == "last",
        induced=not directed,
    )
    (edges,) = layers.edges
    ends = (edges.sources, edges.destinations) if csc else (edges.destinations, edges.sources)
    found = layers.nodes[""]
    if layers.trees is not None:
        found = torch.stack([layers.trees[""], found], 1)
    return *ends, found, edges.positions if return_edge_id else None, layers.hops[""], edges.hops


@_counted
def subgraph(
    rowptr: Tensor, col: Tensor, nodes: Tensor, return_edge_id: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (pointers, columns, edges) between ``nodes`` (n,), by their places among these."""
    row, other, edges = induced(nodes, rowptr, col)
    pointers = prefix_sums(torch.bincount(row, minlength=nodes.numel()))
    return pointers, other, edges if return_edge_id else None


@_counted
def random_walk(rowptr: Tensor, col: Tensor, seed: Tensor, walk_length: int, p: float = 1.0, q: float = 1.0) -> Tensor:
    """Return (n, walk_length + 1) nodes of walks, as `torch_cluster.random_walk` does, of edges by rows, in each of
    which columns ascend.
    """
    given = (x.detach().cpu().to(torch.int64).contiguous() for x in (rowptr, col, seed))
    return walks(*given, walk_length, drawn_seed(), float(p), float(q))[0].to(seed.device)


__all__ = ["neighbor_sample", "random_walk", "subgraph"]
