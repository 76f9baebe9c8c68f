"""Sums over all rows of a matrix, the gradients of biases, by PyTorch's own kernel.

Inductor's code for CPUs reads the whole matrix once for each vector of columns: 16 times for 128 columns of float32.
This is found behind autograd, where gradients are written out.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Graph

from ...ops.core.library import register
from ...ops.core.operator import Operator
from ..lazy import known_size

LEAST = 1 << 16
"""Elements from which reading them once is worth a call that Inductor cannot fuse with others."""
_SUM = torch.ops.aten.sum.dim_IntList

_row_sums = register(
    Operator(
        "row_sums",
        run=lambda structure, operands, attributes: operands[0].sum(0, keepdim=attributes[0]),
        operands="Tensor x",
        attributes="bool keepdim",
        like=lambda structure, operands, attributes, transposed: operands[0].sum(0, keepdim=attributes[0]),
    )
)


def keep_row_sums(graph: Graph) -> None:
    """Put PyTorch's own sums over the rows of large matrices into a graph of ATen, in place."""
    for node in graph.find_nodes(op="call_function", target=_SUM):
        x, dims, *keepdim = node.args
        known = x.meta.get("val")
        if not isinstance(known, Tensor) or known.dim() != 2 or [*dims] != [0] or node.kwargs:
            continue
        if known.device.type == "cpu" and known.is_floating_point() and (known_size(known.numel()) or 0) >= LEAST:
            node.target, node.args = torch.ops.gsb.row_sums.default, (x, bool(keepdim and keepdim[0]))
