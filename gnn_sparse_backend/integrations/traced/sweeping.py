"""What nobody wants any more of a program in which other nodes have taken the places of some, and sizes that are found
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from torch import Tensor
from torch.fx import Graph, Node, map_arg

from .matching import filled_with, memory_of, name_of, scatter_of, written_to


def sweep(graph: Graph, replaced: Container[Node]) -> None:
    """Erase nodes that no other wants, if they were ``replaced`` or do nothing but compute."""
    for node in reversed(list(graph.nodes)):
        if not node.users and (node in replaced or _is_pure(node) or _fills_its_own(node)):
            graph.erase_node(node)


def same_unknown_sizes(graph: Graph, lasts: Callable[[Node, Node], bool]) -> dict[Node, Node]:
    """Nodes with a size that nobody knows before the program runs, and the first ones that are equal to them.

    Each layer takes the self loops out of the same edge index, and so each has a number of edges of its own. Behind
    autograd PyTorch lets equal nodes be one, though not what it knows of those behind them: operators would then be of
    a size that nothing in the program has. lasts: (what is read, node) to whether nobody writes to it from there on.
    """
    if not any(_SIZES in node.meta for node in graph.nodes):
        return {}
    # results of the program stay tensors of their own
    results = {memory_of(node) for node in next(iter(reversed(graph.nodes))).all_input_nodes}
    same: dict[Node, Node] = {}
    first: dict[str, Node] = {}
    for node in graph.nodes:
        same[node] = node
        if (
            node.op.startswith("call_")
            and _is_pure(node)
            and all(lasts(x, node) for x in (node, *node.all_input_nodes))
        ):
            arguments = map_arg((node.args, node.kwargs), same.__getitem__)
            same[node] = first.setdefault(repr((node.op, node.target, arguments)), node)
    twice = {node: other for node, other in same.items() if node is not other and _SIZES in node.meta}
    return {node: other for node, other in twice.items() if memory_of(node) not in results}


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


_SIZES = "unbacked_bindings"
"""What ``torch.compile`` notes of a node whose result has such a size."""
_PURE = frozenset(
    ("getitem", "Size", "sym_sum", "truediv", "leaky_relu", "segment_reduce", "in_degrees_of_edges.default")
)
"""Beside methods of tensors. Degrees go where a mean, which finds its own, has taken the place of sums by them."""
_RANDOM = frozenset(("dropout", "rand_like", "randn_like", "rand", "randn", "bernoulli", "multinomial", "normal"))
