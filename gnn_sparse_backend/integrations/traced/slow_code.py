"""What Inductor's code for CPUs is slow at, written otherwise: sums over all rows of a matrix, the gradients of biases,
and masks that are kept for the way back. Both are found behind autograd, where gradients are written out.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ...ops.core.operator import Operator
from ..lazy import known_size

LEAST = 1 << 16
"""Elements from which another way is worth what it costs: a call that Inductor cannot fuse with others, or a pass."""
_aten = torch.ops.aten

ROW_SUMS = Operator(
    "row_sums",
    run=lambda structure, operands, attributes: operands[0].sum(0, keepdim=attributes[0]),
    operands="Tensor x",
    attributes="bool keepdim",
    like=lambda structure, operands, attributes, transposed: operands[0].sum(0, keepdim=attributes[0]),
)

TRUTH_VALUES = Operator(
    "truth_values",
    run=lambda structure, operands, attributes: operands[0].view(torch.bool).clone(),
    operands="Tensor x",
    like=lambda structure, operands, attributes, transposed: operands[0].to(torch.bool),
)


def keep_row_sums(graph: Graph) -> None:
    """Put PyTorch's own sums over the rows of large matrices into a graph of ATen, in place.

    Inductor's code reads the whole matrix once for each vector of columns: 16 times for 128 columns of float32.
    """
    for node in graph.find_nodes(op="call_function", target=_aten.sum.dim_IntList):
        x, dims, *keepdim = node.args
        known = _large(x)
        if known is None or known.dim() != 2 or [*dims] != [0] or node.kwargs:
            continue
        if known.is_floating_point():
            node.target, node.args = torch.ops.gsb.row_sums.default, (x, bool(keepdim and keepdim[0]))


def store_masks_as_numbers(graph: Graph) -> None:
    """Have a graph of ATen make the large masks that it returns as bytes of 0 and 1, and return a copy of these.

    Inductor's code for AVX2 takes a vector of truth values apart, one by one, where it is stored.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        return
    (output,) = graph.find_nodes(op="output")
    for mask in output.all_input_nodes:
        known = _large(mask)
        if (
            known is None
            or known.dtype is not torch.bool
            or torch.Tag.pointwise not in getattr(mask.target, "tags", ())
        ):
            continue
        with graph.inserting_before(output), known.fake_mode:
            ends = [
                _put(graph, _aten.full.default, [], end, dtype=torch.float32, device=known.device) for end in (1, 0)
            ]
            number = _put(graph, _aten.where.self, mask, *ends)
            byte = _put(graph, torch.ops.prims.convert_element_type.default, number, torch.uint8)
            output.replace_input_with(mask, _put(graph, torch.ops.gsb.truth_values.default, byte))


def _large(node: Node) -> Tensor | None:
    """What is known of a large tensor of a CPU."""
    known = node.meta.get("val")
    if isinstance(known, Tensor) and known.device.type == "cpu" and (known_size(known.numel()) or 0) >= LEAST:
        return known
    return None


def _put(graph: Graph, function, *args, **kwargs) -> Node:
    """A node, with what is known of its result."""
    node = graph.call_function(function, args, kwargs)
    node.meta["val"] = function(*(x.meta["val"] if isinstance(x, Node) else x for x in args), **kwargs)
    return node
