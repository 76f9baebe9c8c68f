"""Which node each edge has at one of its ends, and the graph of two such ends.

A framework says here how it knows its edges: as index tensors (PyG), or as a graph object (DGL).
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from ...compiler.cache.bounded import keeping
from ...structures.graph import Graph
from ..core.refusal import Boundary, Refusal
from ..scopes.modes import transformed


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


class Host(Boundary):
    """What lazy tensors need from a framework.

    Attributes:
        message: what a message is counted as that the framework computes itself.
        compute: ``(recipe, reason) -> tensor``, by our kernels or by the framework; reason: what for.
        of_edges: whether a lazy tensor may stand at ends, and not only at its own rows.
    """

    message: str
    of_edges = True

    def __init__(self) -> None:
        self.compute = self.admit(_reference, self.message, _by_kernels)

    def graph(self, rows: End, columns: End | None) -> Graph | Refusal:
        """The graph with these ends, of shape (rows.size, columns.size); without columns one of any other end."""
        raise NotImplementedError

    def either(self, first: End, second: End) -> tuple[Graph, bool] | Refusal:
        """A graph with these ends, in the direction that is at hand, and whether ``first`` are its rows."""
        raise NotImplementedError

    def entering(self, x):
        """Lazy rows of nodes are for arithmetic: an operator is given them computed."""
        if type(x) in (tuple, list):
            return x
        return x if x._recipe.of_edges else self.computed(x, self.message)

    def counted(self, operator: str) -> str:
        """What the framework's users know an operator of lazy tensors as."""
        return operator


def _by_kernels(recipe, reason: str):
    return recipe.run() if transformed() is None else Refusal(reason)


def _reference(recipe, reason: str) -> Tensor:
    return recipe.reference()


@keeping(8)
def loops(count: int, device: torch.device) -> Graph:
    """The graph that arithmetic on ``count`` rows runs on, which has an edge for each row."""
    return Graph._of_loops(count, device)
