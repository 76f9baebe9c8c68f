"""The small graphs that DGL's layers are walked on: fresh ones at every call, always the same.

Multigraphs all of them: four edges of each come twice. ``square`` has a self loop at every node, for layers that refuse
a node without neighbours; ``isolated`` has two such nodes and some without outgoing edges.
"""

from __future__ import annotations

import dgl
import torch
from torch import Tensor

NODES, EDGES = 12, 40  # of `isolated`; `square` has NODES edges more
SOURCES, TARGETS, LINKS = 9, 7, 25  # of `bipartite`
RELATIONS = 3
TYPED = {"a": 8, "b": 6}  # node types of `typed` and their numbers
TYPED_EDGES = {("a", "r", "b"): 20, ("b", "s", "b"): 15, ("b", "t", "a"): 12, ("a", "r", "a"): 5}

# DGL's typed products ask no operator of its own where there is no GPU.
DENSE = "dense products of PyTorch"


def draw(high: int, number: int, seed: int) -> Tensor:
    """``number`` integers in [0, high)."""
    return torch.randint(high, (number,), generator=torch.Generator().manual_seed(seed))


def pairs(sources: int, targets: int, edges: int, seed: int) -> tuple[Tensor, Tensor]:
    """``edges`` edges, the last ones copies of the first ones, in no order."""
    source, target = draw(sources, edges, seed), draw(targets, edges, seed + 1)
    twice = min(4, edges // 2)
    source[-twice:], target[-twice:] = source[:twice], target[:twice]
    return source, target


def isolated() -> dgl.DGLGraph:
    """Nodes 10 and 11 have no edge at all."""
    return dgl.graph(pairs(NODES - 2, NODES - 2, EDGES, 5), num_nodes=NODES)


def loopless() -> dgl.DGLGraph:
    """`isolated` without its self loops, for layers that divide by the distance of an edge's ends."""
    return dgl.remove_self_loop(isolated())


def square() -> dgl.DGLGraph:
    """`isolated` with a self loop at every node, after the other edges."""
    return dgl.add_self_loop(isolated())


def square_int32() -> dgl.DGLGraph:
    """`square` with indices of 32 bits."""
    return square().int()


def bipartite() -> dgl.DGLGraph:
    """One relation between two types of nodes; the last target has no edge."""
    return dgl.heterograph(
        {("source", "to", "target"): pairs(SOURCES, TARGETS - 1, LINKS, 7)},
        num_nodes_dict={"source": SOURCES, "target": TARGETS},
    )


def full_bipartite() -> dgl.DGLGraph:
    """`bipartite` with an edge to every target."""
    source, target = pairs(SOURCES, TARGETS, LINKS - TARGETS, 7)
    return dgl.heterograph(
        {
            ("source", "to", "target"): (
                torch.cat([source, torch.arange(TARGETS)]),
                torch.cat([target, torch.arange(TARGETS)]),
            )
        },
        num_nodes_dict={"source": SOURCES, "target": TARGETS},
    )


def block() -> dgl.DGLGraph:
    """The block of a mini-batch: the in-edges of some nodes of `square`, targets first among the sources."""
    seeds = torch.tensor([3, 0, 7, 11])
    return dgl.to_block(dgl.in_subgraph(square(), seeds), seeds)


def batch() -> dgl.DGLGraph:
    """Three graphs in one, the second without edges, the third of one node."""
    return dgl.batch([isolated(), dgl.graph(([], []), num_nodes=3), dgl.graph(([0], [0]), num_nodes=1)])


def typed() -> dgl.DGLGraph:
    """Four relations on two types of nodes, two of the relations under one name; the last node of a type is bare."""
    edges = {
        (source, name, target): pairs(TYPED[source] - 1, TYPED[target] - 1, number, 20 + position)
        for position, ((source, name, target), number) in enumerate(TYPED_EDGES.items())
    }
    return dgl.heterograph(edges, num_nodes_dict=TYPED)


def edge_types(edges: int, sort: bool = False) -> Tensor:
    """A relation for each of ``edges`` edges."""
    types = draw(RELATIONS, edges, 9)
    return types.sort().values if sort else types
