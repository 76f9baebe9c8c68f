"""Which node each edge has at one of its ends, and the graph of two such ends.

A framework says here how it knows its edges: as index tensors (PyG), or as a graph object (DGL).
"""

from __future__ import annotations

from collections.abc import Hashable

from torch import Tensor

from ...structures.graph import Graph


class NoGraph(ValueError):
    """There is no graph of the ends that were asked for: an index is out of range."""


class End:
    """One end of all edges.

    Attributes:
        count: number of edges.
        size: number of nodes at this end.
        key: two ends with equal keys are the same end, as long as both objects live.
    """

    __slots__ = ("count", "key", "size")

    def __init__(self, key: Hashable, count: int, size: int):
        self.key, self.count, self.size = key, count, size

    def gather(self, x: Tensor) -> Tensor:
        """(count, ...) from x (size, ...): the framework's own operation, which raises the framework's own errors."""
        raise NotImplementedError

    def modified(self) -> bool:
        """Whether the edges were written to since this object was made."""
        return False


class Host:
    """What lazy tensors need from a framework.

    name: by which it is enabled and disabled.
    """

    name: str

    def graph(self, rows: End, columns: End | None) -> Graph:
        """The graph with these ends, of shape (rows.size, columns.size); without columns one of any other end.

        Raises NoGraph if there is none.
        """
        raise NotImplementedError

    def either(self, first: End, second: End) -> tuple[Graph, bool]:
        """A graph with these ends, in the direction that is at hand, and whether ``first`` are its rows."""
        return self.graph(first, second), True

    def ours(self, operator: str) -> None:
        """Count a call that runs on our kernels."""
        raise NotImplementedError

    def fallback(self, reason: str) -> None:
        """Count a message that the framework computes itself."""
        raise NotImplementedError
