"""Contents of index tensors, as a store of graphs knows them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from ...structures.graph import Graph
    from ...structures.relational.graph import RelGraph


class Sighting(NamedTuple):
    """A tensor that had an index's content: it, or what it is a view of, and its state then."""

    owner: weakref.ref
    state: tuple


class IndexContent:
    """One content of an index tensor, and the graphs that have it as their first index.

    copy: the content; None if it is too large to keep, or on a GPU. graphs: by kind, other indices and shape. ends: for
    a number of nodes, a graph that has this index as an end, and whether as its rows. derived: by second index and
    computation, tensors that were computed from both, and their versions then. partners: indices that this one shares
    graphs or tensors with. came_back: whether it was found in a second tensor.
    """

    __slots__ = (
        "__weakref__",
        "came_back",
        "copy",
        "derived",
        "ends",
        "graphs",
        "key",
        "nbytes",
        "partners",
        "sightings",
    )

    def __init__(self, key: tuple, copy: Tensor | None):
        self.key, self.copy, self.came_back = key, copy, False
        self.sightings: list[Sighting] = []
        self.graphs: dict[tuple, Graph | RelGraph] = {}
        self.ends: dict[int, tuple[Graph, bool]] = {}
        self.derived: dict[tuple, tuple] = {}
        self.partners: set[IndexContent] = set()
        self.nbytes = 0 if copy is None else copy.nbytes + len(key[-1])


def pair(one: IndexContent, other: IndexContent) -> None:
    """Note that two contents share a graph or tensors."""
    if one is not other:
        one.partners.add(other)
        other.partners.add(one)
