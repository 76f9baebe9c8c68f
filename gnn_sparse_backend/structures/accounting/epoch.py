"""``gsb.precompile(..., memory=True)``: what a full-graph epoch will take, from sizes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...frozen import dataclass
from ...system import process_memory
from .held import Held, memory_of, tabulated

EIGHTHS_OF_MASKS = 2
"""Bits that a rectified unit and the dropout behind it keep of a number with little memory."""


@dataclass(frozen=True)
class EpochMemory:
    """What an epoch of layers on one graph takes. Prints as a table.

    rows: the process now, what the structure still derives, what layers keep until the backward pass, and what the
    largest layer has besides at the peak. nbytes: all of it.
    """

    rows: tuple[Held, ...]

    @property
    def nbytes(self) -> int:
        return sum(row.nbytes for row in self.rows)

    def __str__(self) -> str:
        return tabulated(self.rows, "an epoch, at its peak", self.nbytes)


def epoch_memory(name: str, graph: Any, widths: Sequence[int], heads: int, itemsize: int, low: bool) -> EpochMemory:
    """What an epoch takes of layers on a graph with rectified units and dropouts between them.

    Args:
        name: of the graph.
        graph: square or not, with ``shape``, ``num_edges``; what it has derived is there already.
        widths: of the results of the layers, in order; features of the first are in the process now.
        heads: of an attention; 0 of sums.
        itemsize: bytes of a number.
        low: whether layers keep their inputs alone, go by chunks of rows, and units keep bits.
    """
    nodes, edges = max(graph.shape), graph.num_edges
    index = graph.some_index.itemsize
    both = 2 * index * (edges + nodes) + index * edges  # of the transpose also the numbers of edges
    derived = max(both - memory_of(graph).nbytes, 0) if graph.listed is None else both
    kept, peaks, before = 0, [], 0
    for number, width in enumerate(widths):
        last = number + 1 == len(widths)
        own, given = nodes * width * itemsize, nodes * (widths[number - 1] if number else 0) * itemsize
        per_head = nodes * heads * itemsize
        if low:
            masks = 0 if last else EIGHTHS_OF_MASKS * nodes * width // 8
            # what a unit and a dropout make of the result, with the bytes that are drawn
            forward = before + given + own * (1 if last else 3) + (0 if last else nodes * width)
            backward = before + given * 2 + own * (2 if heads else 1) + 8 * per_head
            peaks += [forward + (own if heads else 0) * last, backward]
            before += given + masks + 2 * per_head
        else:
            # the sum, or values and result of an attention; behind it what a unit and a dropout make
            summed = given or own  # features of the first layer are not known
            peaks.append(before + summed + 3 * own)
            before += 2 * (own + per_head) if heads else summed
            before += 0 if last else 2 * own
            peaks += [before + 3 * max(own, given)] if heads else []
        kept = before
    resident, *_ = process_memory()
    rows = (
        Held("process", "in memory now", resident, False),
        Held(name, "structure, still to be derived at most", derived, True),
        Held("layers", "kept until the backward pass", kept, False),
        Held("layers", "besides, at the peak", max(max(peaks, default=0) - kept, 0), False),
    )
    return EpochMemory(tuple(row for row in rows if row.nbytes))
