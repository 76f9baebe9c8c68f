"""PyG as lazy tensors see it: edges are index tensors."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ...structures.graph import Graph
from ..core.graphs import GRAPHS
from ..core.refusal import Refusal
from ..lazy import DEFERRED, End, Host, materialise

PROPAGATE = "propagate"
"""What a message that the framework computes is counted under."""


class IndexEnd(End):
    """The end of the edges that an index tensor (E,) gives.

    select: ``(x) -> x[index]``, the framework's own gather; None if nothing is gathered here.
    """

    __slots__ = ("index", "select", "version")

    def __init__(self, index: Tensor, size: int, select: Callable[[Tensor], Tensor] | None = None):
        self.index, self.select, self.size, self.count = index, select, size, index.shape[0]
        self.version = None if index.is_inference() else index._version
        self.key = (index.data_ptr(), self.count, index.stride(), size)

    def gather(self, x):
        return self.select(x)

    def modified(self):
        return self.version is not None and self.version != self.index._version


TINY = Refusal("the edges are so few that the framework takes no longer")
OUT_OF_RANGE = "an index is out of range"
TOO_LARGE = "the graph does not fit into memory"


class PygHost(Host):
    name, message = "pyg", PROPAGATE
    deferred, computed = DEFERRED, staticmethod(materialise)

    def graph(self, rows, columns):
        try:
            if columns is None:
                return GRAPHS.find_end(rows.index, rows.size)
            return GRAPHS.find("coo", rows.index, columns.index, (rows.size, columns.size))
        except (ValueError, MemoryError) as error:
            return Refusal(OUT_OF_RANGE if isinstance(error, ValueError) else TOO_LARGE)

    def either(self, first, second):
        try:
            return GRAPHS.find_either(first.index, second.index, (first.size, second.size))
        except (ValueError, MemoryError) as error:
            return Refusal(OUT_OF_RANGE if isinstance(error, ValueError) else TOO_LARGE)


HOST = PygHost()


def segments(ptr: Tensor, count: int, reason: str) -> Graph | Refusal:
    """A graph whose rows are the segments of ``count`` edges that pointers give; reason: where they give none."""
    try:
        return GRAPHS.find("segments", ptr, ptr, (max(ptr.numel() - 1, 0), count))
    except (ValueError, MemoryError) as error:
        return Refusal(reason if isinstance(error, ValueError) else TOO_LARGE)
