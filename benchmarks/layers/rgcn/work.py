"""The bytes and operations of the two-layer relational network, forward and backward, if its edge stage were fused.

Every edge's row is added to others of its (node, relation) pair, or to what the product of such a pair adds to, and
each relation has a product for every pair at the end where it has fewer. Nothing is kept for an edge or a pair.
"""

from __future__ import annotations

import numpy as np

from benchmarks.layers.rgcn.graphs import RelationalGraph
from benchmarks.layers.rgcn.models import LAYERS
from benchmarks.operators.work import INDEX_BYTES, NOTHING, VALUE_BYTES, Work, dense_work, streamed


def network_work(graph: RelationalGraph, features: int, *, backward: bool, itemsize: int = VALUE_BYTES) -> Work:
    """Both layers; ``backward``: with the gradients of x and of all parameters. itemsize: bytes of a value."""
    relations = relations_work(graph, features, itemsize)
    layer = relations + dense_work(graph.nodes, features, features, backward=backward, itemsize=itemsize)
    if backward:
        # the gradient of x, and the matrices' by outer products, cost what the layer does
        layer += relations + relations
    work = NOTHING
    for _ in range(LAYERS):
        work += layer
    return work


def relations_work(graph: RelationalGraph, features: int, itemsize: int = VALUE_BYTES) -> Work:
    """The sum over the relations of one layer."""
    fewer = int(np.minimum(*graph.pairs).sum())
    sources = len(np.unique(graph.source))
    # a relation and two ends for each edge; the number of an edge's mean stands for its pair
    structure = 3 * INDEX_BYTES * graph.num_edges
    matrices = streamed(graph.num_relations * features * features, itemsize=itemsize)
    row = features * itemsize
    once = Work(
        structure + sources * row,
        structure + graph.num_edges * row,
        2 * fewer * features * features + 2 * graph.num_edges * features,
    )
    return once + matrices + streamed(graph.nodes * features, itemsize=itemsize)
