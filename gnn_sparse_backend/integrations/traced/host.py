"""A compiled program as lazy tensors see it: edges are nodes that are indices."""

from __future__ import annotations

from collections.abc import Callable

from torch.fx import Node

from ...ops.core.traced import Traced
from ..core.refusal import Refusal
from ..lazy import End, Host, lazy_tensor
from ..lazy.products import Product
from .edges import EDGES
from .matching import Index, changes_mode, known_tensor, linear_of, name_of
from .pointers import Pointers
from .segments import SEGMENTS
from .symbols import Tape


class IndexEnd(End):
    """The end of the edges that an index gives. wraps: ids may count from the end."""

    __slots__ = ("index", "wraps")

    def __init__(self, index: Index, size, wraps: bool = False):
        super().__init__((index, str(size)), known_tensor(index.node).shape[-1], size)
        self.index, self.wraps = index, wraps


class SegmentsEnd(End):
    """Segments of ``count`` rows, as edges into each of them."""

    __slots__ = ("pointers",)

    def __init__(self, pointers: Pointers, size, count):
        super().__init__((pointers, str(size)), count, size)
        self.pointers = pointers


class TracedHost(Host):
    """name: of the framework that calls are counted for."""

    message = "propagate"

    def __init__(self, name: str, tape: Tape):
        self.name, self.tape = name, tape

    def compute(self, recipe, reason: str):
        """Compute by our operators, always: what was found to be better left as it is, is not asked for."""
        return recipe.run()[0]

    def graph(self, rows: IndexEnd | SegmentsEnd, columns: IndexEnd | None) -> Traced | Refusal:
        if type(rows) is SegmentsEnd:
            index = rows.pointers.index
            arguments = self.tape.symbol(index.node), index.row, rows.count, self.name, ""
            return Traced(arguments, kind=SEGMENTS)
        first = self.tape.symbol(rows.index.node)
        if columns is None:
            second, row, sizes, wraps = None, -1, (rows.size, rows.size), rows.wraps
        else:
            second, row = self.tape.symbol(columns.index.node), columns.index.row
            sizes, wraps = (rows.size, columns.size), rows.wraps or columns.wraps
        arguments = (first, second, rows.index.row, row, *sizes, wraps, self.name, "")
        return Traced(arguments, kind=EDGES)

    def either(self, first: IndexEnd, second: IndexEnd) -> tuple[Traced | Refusal, bool]:
        return self.graph(first, second), True

    def counted(self, operator: str) -> str:
        """Have the operator that was written last counted as this when it runs."""
        node = self.tape.last
        at = next(i for i, each in enumerate(node.args) if each == self.name and node.args[i + 1] == "")
        node.update_arg(at + 1, operator)
        return operator


class NodeHost(TracedHost):
    """Host of what a node of the program computes: to compute it is to take the node."""

    def __init__(self, host: TracedHost, node: Node):
        super().__init__(host.name, host.tape)
        self.node = node

    def compute(self, recipe, reason: str):
        return self.tape.symbol(self.node)


def gathered_of(host: TracedHost, node: Node, reader: Node, lasts: Callable[[Node, Node], bool], followed: set[Node]):
    """The features of a node that ``reader`` gathers: a linear map that nobody else reads waits, and is followed.

    lasts: (what is read, node) to whether nobody writes to it from there on.
    """
    found, known = linear_of(node), host.tape.symbol(node)
    readers = {each for each in node.users if name_of(each) not in ("size", "dim")}
    if found is None or readers != {reader} or not all(lasts(x, node) for x in (found.x, found.matrix, node)):
        return known
    between = node.next
    while between is not reader:
        if changes_mode(between):
            return known
        between = between.next
    followed.add(node)
    x, matrix = host.tape.symbol(found.x), host.tape.symbol(found.matrix)
    return lazy_tensor(Product(NodeHost(host, node), known.shape, known.dtype, found.function, x, matrix))
