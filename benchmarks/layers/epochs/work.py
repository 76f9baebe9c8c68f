"""The bytes and operations of a network's layers, if the edge stage of each were one fused kernel."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from benchmarks.layers.epochs.networks import BASES, HEADS
from benchmarks.layers.layer_work import attention_work, gcn_work, sage_work
from benchmarks.operators.work import NOTHING, Pattern, Work, aggregation_work, dense_work


def network_work(
    framework: str, kind: str, pattern: Pattern, widths: Sequence[int], *, input_gradient: bool = False
) -> Work:
    """Forward and backward. ``input_gradient``: the first layer's input needs a gradient as well."""
    if kind == "sage":
        return sage_work(framework, pattern, widths, backward=True, input_gradient=input_gradient)
    work = NOTHING
    layers = list(itertools.pairwise(widths))
    for at, (fan_in, fan_out) in enumerate(layers):
        needs = input_gradient or at > 0
        if kind == "gcn":
            work += gcn_work(pattern, fan_in, fan_out, backward=True)
        elif kind == "gat":
            heads = HEADS if at + 1 < len(layers) else 1
            work += attention_work("gat", framework, pattern, fan_in, heads, fan_out // heads)
        else:
            work += aggregation_work(pattern, fan_in, weighted=False, backward=needs)
            # GIN: two products; relational: one for the sums that each basis weights, and one for the node itself
            sizes = (
                [(fan_in, fan_out), (fan_out, fan_out)]
                if kind == "gin"
                else [(BASES * fan_in, fan_out), (fan_in, fan_out)]
            )
            for k, n in sizes:
                work += dense_work(pattern.rows, k, n, backward=True, input_gradient=needs)
    return work


__all__ = ["network_work"]
