"""How much memory the graphs of edge indices take and may take, and what is said where they are dropped for want of it,
to be made again at the next step.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING

from ...config import PYG_CACHE_BYTES
from ...runtime.machine import MACHINE
from ...structures.graph import Graph

if TYPE_CHECKING:
    from ...structures.relational.graph import RelGraph

OFTEN = 8
"""How often graphs make room for others, each of which fits, until somebody is told: a loop has then more graphs than
there is room for.
"""


class LostStructuresWarning(UserWarning):
    """Graphs of edge indices do not fit into ``GSB_PYG_CACHE_BYTES``, and are made again at every step."""


class _Lost:
    def __init__(self) -> None:
        self.count, self.told = 0, False
        self.lock = threading.Lock()


_lost = _Lost()


def default_capacity() -> int:
    """Bytes of structure that are kept: ``GSB_PYG_CACHE_BYTES``, or an eighth of the machine's memory."""
    chosen = PYG_CACHE_BYTES.get()
    return MACHINE // 8 if chosen is None else chosen


def bytes_of(graph: Graph | RelGraph) -> int:
    """Bytes of a graph with its transpose, or with what products by relation derive from it, at most about."""
    if isinstance(graph, Graph):
        return 2 * graph.indices.element_size() * (2 * graph.num_edges + sum(graph.shape))
    return graph.source.element_size() * (28 * graph.num_edges + 2 * sum(graph.shape))


def note_lost(needed: int, capacity: int, alone: bool) -> None:
    """Count that graphs which take about ``needed`` bytes were dropped. alone: whether one of them is too large."""
    with _lost.lock:
        _lost.count += 1
        telling = not _lost.told and (alone or _lost.count >= OFTEN)
        _lost.told = _lost.told or telling
    if telling:
        wanted = -(-needed * 5 // 4 // 10**6)
        warnings.warn(
            f"graphs made of edge indices take about {needed:,} bytes, and {capacity:,} are kept: they are dropped and "
            f"made again at every step. Set GSB_PYG_CACHE_BYTES={wanted}MB or more, if there is so much memory",
            LostStructuresWarning,
            stacklevel=2,
        )


def lost() -> int:
    """How often graphs were dropped for want of room, since `reset_lost`."""
    return _lost.count


def reset_lost() -> None:
    """Begin at zero, and tell it again."""
    with _lost.lock:
        _lost.count, _lost.told = 0, False
