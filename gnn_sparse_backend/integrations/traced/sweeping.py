"""What nobody wants any more of a program in which other nodes have taken the places of some."""

from __future__ import annotations

from collections.abc import Container

from torch import Tensor
from torch.fx import Graph, Node

from .matching import filled_with, name_of, scatter_of, written_to


def sweep(graph: Graph, replaced: Container[Node]) -> None:
    """Erase nodes that no other wants, if they were ``replaced`` or do nothing but compute."""
    for node in reversed(list(graph.nodes)):
        if not node.users and (node in replaced or _is_pure(node) or _fills_its_own(node)):
            graph.erase_node(node)


def _is_pure(node: Node) -> bool:
    """Whether a call may be left out where nobody wants its result."""
    if node.op == "get_attr":
        return True
    name = name_of(node)
    return name in _PURE or (not written_to(node) and name not in _RANDOM and hasattr(Tensor, name))


def _fills_its_own(node: Node) -> bool:
    """Whether a scatter goes into a tensor that nobody else has."""
    scatter = scatter_of(node)
    return scatter is not None and filled_with(scatter.out) is not None and len(scatter.out.users) == 1


_PURE = frozenset(("getitem", "Size", "sym_sum", "truediv", "leaky_relu", "segment_reduce"))
"""Beside methods of tensors."""
_RANDOM = frozenset(("dropout", "rand_like", "randn_like", "rand", "randn", "bernoulli", "multinomial", "normal"))
