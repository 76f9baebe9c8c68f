"""DGL's feature shapes in the terms of the kernels.

DGL broadcasts a source feature (n, *a) with an edge feature (E, *b) as NumPy does, leading ones added to the shorter
of a and b. A kernel knows features (n, heads, width) and edge weights (E, heads).
"""
from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

Shape = tuple[int, ...]


class Heads(NamedTuple):
    """A feature as (heads, width), and the shape of the result as DGL's users see it."""

    heads: int
    width: int
    out: Shape


@lru_cache(maxsize=1024)
def weighted(feature: Shape, weight: Shape) -> Heads | None:
    """How a weight of shape ``weight`` per edge applies to a source feature of shape ``feature``.

    The weight may be constant over trailing axes and must agree with the feature on the others, as (4, 1) or (1, 1)
    or () with (4, 8). None if it is constant over another axis, or the feature over one of the weight's.

        weighted((4, 8), (4, 1)) = heads 4, width 8      weighted((4, 8), (1, 1)) = heads 1, width 32
        weighted((4, 8), (1, 8)) = None                  weighted((1,), (8,)) = None
    """
    rank = max(len(feature), len(weight))
    feature = (1,) * (rank - len(feature)) + tuple(feature)
    weight = (1,) * (rank - len(weight)) + tuple(weight)
    axes = rank
    while axes and weight[axes - 1] == 1:
        axes -= 1
    if weight[:axes] != feature[:axes]:
        return None
    return Heads(prod(weight[:axes]), prod(feature[axes:]), feature)
