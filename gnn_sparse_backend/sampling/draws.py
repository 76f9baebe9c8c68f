"""Neighbours of nodes, drawn: which kernels run, and on what."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..compiler.compile import compile_loops
from ..compiler.loops.neighbours import (
    REPLACED,
    UNIFORM,
    WEIGHTED,
    WEIGHTED_REPLACED,
    bounds_function,
    draw_function,
)
from ..frozen import dataclass
from ..runtime.memory import empty
from ..runtime.type_names import type_name
from ..structures.checks import as_kernels_read

_WORD = (1 << 64) - 1
_STEP, _FACTORS = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of SplitMix64


@dataclass(frozen=True)
class Relation:
    """Edges of one type by their destinations. Arrays of any layout and class are given, and are as kernels read them.

    Attributes:
        source, destination: types of nodes.
        indptr: (destinations + 1,); indices: (edges,), of the same type, int32 or int64.
        sources: nodes of the source's type.
        weights: (edges,) of positions, float32 or float64; None for equal ones.
        times: int64, of positions (edges,), or of the sources, by which each row ascends; None without.
        of_edges: whether ``times`` are those of edges.
    """

    source: str
    destination: str
    indptr: Tensor
    indices: Tensor
    sources: int
    weights: Tensor | None = None
    times: Tensor | None = None
    of_edges: bool = False

    def __post_init__(self) -> None:
        for name in ("indptr", "indices", "weights", "times"):
            if (array := getattr(self, name)) is not None:
                object.__setattr__(self, name, as_kernels_read(array))

    @property
    def destinations(self) -> int:
        return int(self.indptr.numel()) - 1


@dataclass(frozen=True)
class Drawn:
    """Edges that were drawn for rows, in the order of the rows.

    Attributes:
        pointers: (rows + 1,), where those of a row begin.
        positions, neighbours: (drawn,) position in the relation, and the source.
        rows: (drawn,) number of the row, from ``start`` on.
    """

    pointers: Tensor
    positions: Tensor
    neighbours: Tensor
    rows: Tensor


def stream_of(*numbers: int) -> int:
    """What the random numbers of a layer of a relation begin with: int64. numbers: a seed, and which layer it is."""
    word = 0
    for number in numbers:
        word = _mixed((word + (number + 1) * _STEP) & _WORD)
    return (word ^ 1 << 63) - (1 << 63)


def draw(
    relation: Relation,
    keys: Tensor,
    start: int,
    fanout: int,
    stream: int,
    *,
    replace: bool = False,
    latest: Tensor | None = None,
    last: bool = False,
) -> Drawn:
    """Draw ``fanout`` neighbours of each key, all of them where it is below 0.

    keys: (rows,) int64 of destinations, compact. latest: (trees,) int64, where times count, until when.
    """
    keys, latest = as_kernels_read(keys), None if latest is None else as_kernels_read(latest)
    count, edges, index = keys.shape[0], relation.indices.shape[0], type_name(relation.indices.dtype)
    whole = fanout < 0
    first, population = torch.empty_like(keys), torch.empty_like(keys)
    pointers = torch.empty(count + 1, dtype=torch.int64)
    given: tuple[Any, ...] = (
        count,
        relation.destinations,
        edges,
        fanout,
        int(replace),
        relation.destinations,
        keys,
        relation.indptr,
    )
    times = ""
    if latest is not None and relation.times is not None:
        times = "edge" if relation.of_edges else "node"
        given += (relation.sources, latest.shape[0], int(last), relation.indices, relation.times, latest)
    compile_loops(bounds_function, index, times).entry(*given, first, population, pointers)
    drawn = int(pointers[-1])
    positions, neighbours, rows = (empty(pointers, drawn) for _ in range(3))
    given = (count, drawn, edges, int(whole), start, stream, keys, first, population, pointers, relation.indices)
    if relation.weights is None or whole:
        way = REPLACED if replace and not whole else UNIFORM
        compile_loops(draw_function, index, way, "float32").entry(*given, positions, neighbours, rows)
        return Drawn(pointers, positions, neighbours, rows)
    way = WEIGHTED_REPLACED if replace else WEIGHTED
    wrong = torch.tensor([-1])
    ratings = torch.empty(drawn, dtype=torch.float64)
    kernel = compile_loops(draw_function, index, way, type_name(relation.weights.dtype))
    kernel.entry(*given, relation.weights, ratings, wrong, positions, neighbours, rows)
    if int(wrong) >= 0:
        node = int(wrong) % relation.destinations
        begin, end = relation.indptr[node : node + 2].tolist()
        _refuse_weights(relation.weights[begin:end], node)
    return Drawn(pointers, positions, neighbours, rows)


def _refuse_weights(weights: Tensor, node: int) -> None:
    bad = weights[~(weights >= 0)]
    what = f"{bad[0].item()}" if bad.numel() else "nothing above 0"
    raise ValueError(f"weights must be at least 0, and some of a node above 0: node {node} has {what} on its edges")


def _mixed(word: int) -> int:
    for shift, factor in zip((30, 27), _FACTORS):
        word = (word ^ word >> shift) * factor & _WORD
    return word ^ word >> 31
