"""Graphs of ATen, as ``torch.export`` makes them, written as the calls that ``torch.compile`` finds in a program.

The walk (``..traced.walk``) knows gathers, arithmetic and scatters by the names under which users call them. What is
exported has ATen's operators, each with the arguments of the method or function of its name. A node is renamed to
that; tracing the program once more makes it ATen's again.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.nn import functional

from ..traced.symbols import KNOWN

_FUNCTIONS = {
    "leaky_relu": functional.leaky_relu,
    "linear": functional.linear,
    **{name: getattr(torch, name) for name in ("rsub", "where", "segment_reduce")},
    **{name: getattr(torch, name) for name in ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like")},
}
"""What is no method of a tensor, or has its arguments in another order there."""
_METHODS = {"sym_size": "size"}


def as_calls(graph: Graph) -> None:
    """Write ATen's operators in a graph as calls of methods and functions, in place, and note what is known of each
    node where ``torch.compile`` does. Nothing is known to want a gradient.
    """
    for node in list(graph.nodes):
        if "val" in node.meta:
            known = node.meta["val"]
            node.meta[KNOWN] = known.detach() if isinstance(known, Tensor) else known
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten":
            _rename(node)


def _rename(node: Node) -> None:
    """Write one operator of ATen as a call, if it has a name among these."""
    schema = node.target._schema  # type: ignore[union-attr]
    name = schema.name.partition("::")[2]
    if name == "index":
        x, (index, *more) = node.args  # type: ignore[misc]
        if index is not None and not more:
            node.target, node.args = operator.getitem, (x, index)
        return
    if name in _FUNCTIONS:
        node.target = _FUNCTIONS[name]
    elif name in _METHODS or (hasattr(Tensor, name) and schema.arguments[0].name == "self" and node.args):
        node.op, node.target = "call_method", _METHODS.get(name, name)
    else:
        return
    node.args = _tuples(node.args)  # which sizes are in programs of users


def _tuples(x):
    return tuple(map(_tuples, x)) if isinstance(x, (list, tuple)) else x
