"""Reductions of segments, consecutive rows that pointers give, as PyTorch's functions and PyG's write them."""

from __future__ import annotations

import math
import operator
from typing import NamedTuple

import torch
from torch.fx import Node

from .matching import REDUCES, Index, arguments, index_of, known_tensor, name_of


class Pointers(NamedTuple):
    """Where the segments of rows begin, and where the last one ends: an index (segments + 1,)."""

    index: Index

    @property
    def node(self) -> Node:
        return self.index.node


class Segments(NamedTuple):
    """A reduction of each segment of the rows of ``src``.

    pointers: or, where a program has these alone, the node that is the ``lengths`` of segments. empty: what an empty
    segment gives.
    """

    src: Node
    pointers: Pointers | None
    lengths: Node
    reduce: str
    empty: float


def segments_of(node: Node) -> Segments | None:
    """The reduction of segments that a node is."""
    if name_of(node) != "segment_reduce":
        return None
    src, reduce, lengths, indices, offsets, axis, _, initial = arguments(
        node, "data", "reduce", "lengths", "indices", "offsets", "axis", "unsafe", "initial"
    )
    reduce, known = REDUCES.get(reduce, reduce), known_tensor(src)
    if indices is not None or axis not in (None, 0) or known is None or reduce not in _NEUTRAL:
        return None
    if initial not in (None, _NEUTRAL[reduce]):
        return None
    empty = math.nan if reduce == "mean" and initial is None else _NEUTRAL[reduce]
    if offsets is None:
        pointers, vector = differences_of(lengths), known_tensor(lengths)
    else:
        index = index_of(offsets)
        pointers, vector = index and Pointers(index), known_tensor(offsets)
    if vector is None or vector.dtype is not torch.int64 or vector.dim() != 1 or (pointers is None and lengths is None):
        return None
    return Segments(src, pointers, lengths, reduce, empty)


def differences_of(node) -> Pointers | None:
    """The pointers whose differences a node is."""
    if not isinstance(node, Node):
        return None
    if name_of(node) == "diff" and len(node.args) == 1 and not node.kwargs:
        index = index_of(node.args[0])
    elif name_of(node) == "sub" and len(node.args) == 2:
        index, other = (_index_within(x, part) for x, part in zip(node.args, (slice(1, None), slice(None, -1))))
        index = index if index == other else None
    else:
        return None
    return index and Pointers(index)


def _index_within(node, part: slice) -> Index | None:
    """The index of which a node is a part."""
    found = isinstance(node, Node) and node.target is operator.getitem and node.args[1] == part
    return index_of(node.args[0]) if found else None


_NEUTRAL = {"sum": 0, "mean": 0, "prod": 1, "max": -math.inf, "min": math.inf}
"""What a reduction of nothing gives."""
