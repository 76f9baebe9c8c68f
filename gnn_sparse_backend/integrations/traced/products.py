"""Products of matrices that are added to what nobody wants afterwards, in place.

Inductor hands ``addmm`` to PyTorch, which copies the addend into the result before it adds the product. Two linear maps
of a layer that are added, and the gradients of what is used twice, are such sums. They are found behind autograd, where
Inductor has made them.
"""

from __future__ import annotations

import operator

import torch
import torch._inductor.config as inductor
from torch.fx import Graph, Node

from ...ops.core.operator import Operator

_FRESH = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
"""What gives a tensor of its own, as operators of ours do."""


def _add(structure, operands, attributes) -> None:
    out, a, b = operands
    out.addmm_(a, b)


ADD_PRODUCT = Operator(
    "add_product",
    run=_add,
    operands="Tensor(a!) out, Tensor a, Tensor b",
    results="()",
    like=lambda structure, operands, attributes, transposed: None,
)


def add_in_place(graph: Graph) -> None:
    """Put products that are added in place into a graph of ATen, in the place of those that copy."""
    if inductor.max_autotune or inductor.max_autotune_gemm:
        return  # products are Inductor's own code then
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default):
        addend, *factors = node.args
        if not node.kwargs and addend not in factors and _may_be_written(addend, node):
            with graph.inserting_before(node):
                graph.call_function(torch.ops.gsb.add_product.default, (addend, *factors))
            node.replace_all_uses_with(addend)
            graph.erase_node(node)


def _may_be_written(addend: Node, node: Node) -> bool:
    """Whether an addend is a tensor as the sum is, which an operator has made for this sum alone."""
    made = addend.args[0] if addend.target is operator.getitem else addend
    fresh = made.target in _FRESH or getattr(made.target, "namespace", "") == "gsb"
    x, y = addend.meta["val"], node.meta["val"]
    alike = (x.device.type, x.dtype, str(x.shape), str(x.stride())) == ("cpu", y.dtype, str(y.shape), str(y.stride()))
    others = [each for each in addend.users if each.target != torch.ops.gsb.add_product.default]
    return fresh and alike and others == [node]
