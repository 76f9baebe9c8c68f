"""The bytes and operations of a graph layer, forward and backward, if its edge stage were one fused kernel.

A fused kernel keeps nothing per edge: it reads each structure once in each direction, gathers node rows, and writes
node rows. This is the least that a training step must move, whoever runs it. Element-wise operators beside the edge
stage are taken as fused into it, activations and dropout among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.operators.work import (
    NOTHING,
    VALUE_BYTES,
    Pattern,
    Work,
    aggregation_work,
    dense_work,
    gathered,
    streamed,
    structure,
)


@dataclass(frozen=True)
class Attention:
    """What one layer's edge stage works on, in tensors of (nodes, heads * width).

    projections: dense products of the input. sources: tensors gathered by source. destinations: tensors read by
    destination, which may be the same. scalars: values per node and head beside them. forward, backward: operations
    per edge and feature, at least.
    """

    projections: int
    sources: int
    destinations: int
    scalars: int
    forward: int
    backward: int

    @property
    def streamed(self) -> int:
        """The tensors read by destination alone."""
        return self.projections - self.sources


# GAT: the weighted sum; the two products of its backward pass.
# GATv2: sum, slope and dot product before it; going back also the slope again, and the gradients of both sides and of
# the attention vector.
# Transformer: the dot product before it; going back also the gradients of query and key. DGL's layer projects once for
# query, key and value, PyG's three times.
ATTENTION = {
    ("gat", "dgl"): Attention(1, 1, 0, 2, 2, 4),
    ("gat", "pyg"): Attention(1, 1, 0, 2, 2, 4),
    ("gatv2", "dgl"): Attention(2, 1, 1, 0, 6, 12),
    ("gatv2", "pyg"): Attention(2, 1, 1, 0, 6, 12),
    ("transformer", "dgl"): Attention(1, 1, 1, 0, 4, 8),
    ("transformer", "pyg"): Attention(3, 2, 1, 0, 4, 8),
}


def attention_work(
    kind: str,
    framework: str,
    pattern: Pattern,
    features: int,
    heads: int,
    width: int,
    *,
    backward: bool = True,
    itemsize: int = VALUE_BYTES,
) -> Work:
    """An attention layer from ``features`` to ``heads * width``; ``backward``: with all gradients, the input's too.
    itemsize: bytes of a feature."""
    layer = ATTENTION[kind, framework]
    out = heads * width
    work = NOTHING
    for _ in range(layer.projections):
        work += dense_work(pattern.columns, features, out, backward=backward, itemsize=itemsize)
    scalars = pattern.rows * heads * layer.scalars
    inputs = gathered(pattern, layer.sources * out, itemsize) + streamed(
        pattern.rows * layer.streamed * out + scalars, itemsize=itemsize
    )
    # the maximum and the sum of each row's scores are kept for the way back, in float32
    statistics = streamed(2 * pattern.rows * heads)
    work += (
        structure(pattern)
        + inputs
        + streamed(pattern.rows * out, layer.forward * pattern.nnz * out, itemsize)
        + statistics
    )
    if backward:
        back = pattern.transpose
        # both directions: a row's gradient sums over the row, a source's over its column, for which the rows of the
        # cotangent, and of what the scores depend on, are gathered by destination
        work += structure(pattern) + inputs + statistics
        work += structure(back) + gathered(back, (1 + layer.destinations) * out, itemsize)
        gradients = layer.projections * out * pattern.columns + scalars
        work += streamed(gradients, layer.backward * pattern.nnz * out, itemsize)
    return work


def sage_work(framework: str, pattern: Pattern, widths: Sequence[int], *, backward: bool, input_gradient: bool) -> Work:
    """GraphSAGE layers with mean aggregation, of the given widths: an aggregation and two dense products each.

    DGL's layer multiplies before it aggregates where that is narrower. ``input_gradient``: also the first layer's input
    needs a gradient.
    """
    work = NOTHING
    for index, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        needs = input_gradient or index > 0
        first = framework == "dgl" and fan_in > fan_out
        work += aggregation_work(
            pattern, fan_out if first else fan_in, weighted=False, backward=backward and (needs or first)
        )
        for _ in range(2):
            work += dense_work(pattern.rows, fan_in, fan_out, backward=backward, input_gradient=needs)
    return work


def gcn_work(pattern: Pattern, features: int, out: int, *, backward: bool) -> Work:
    """A graph convolution: a dense product, and a sum over the edges with a weight for each node."""
    return (
        dense_work(pattern.rows, features, out, backward=backward)
        + aggregation_work(pattern, min(features, out), weighted=False, backward=backward)
        + streamed(2 * pattern.rows)
    )


def shape_of_work(shape: Mapping[str, int]) -> dict[str, int]:
    return {key: shape[key] for key in ("features", "heads", "width")}
