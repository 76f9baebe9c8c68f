"""Views of lazy tensors: the features of a message in other dimensions."""

from __future__ import annotations

from math import prod

import torch

from ...compiler.cache.bounded import kept
from .recipes import Pointwise

Dims = tuple[int, ...]

_EXTENTS = (int, torch.SymInt)


def reshaped(recipe: Pointwise, shape: torch.Size) -> Pointwise:
    """The message with features in the dimensions of ``shape``, which has as many of them, in the same order."""
    if not recipe.plain:
        return recipe.viewed(shape)
    # None where an operand is constant along a part of what would be one dimension: then the result is viewed
    return recipe.viewed(shape, _split(recipe.inner, tuple(shape[1:]), recipe.dims))


@kept
def _split(inner: Dims, wanted: Dims, operands: tuple[Dims, ...]) -> tuple[Dims, ...] | None:
    """The shapes of operands, which broadcast to ``inner``, when ``inner`` is viewed as ``wanted``; None if they have
    none.

    Both are cut into the shortest runs of dimensions of equal product. Along a run an operand must be full, or
    constant.

        _split((8,), (2, 4), ((8,), (1,))) == ((2, 4), (1, 1))
        _split((2, 4), (8,), ((2, 1),)) is None
    """
    runs = _runs(inner, wanted)
    found = []
    for own in operands:
        if not own:  # a number stays one: in PyTorch it has no say in the type of a result
            found.append(own)
            continue
        own = (1,) * (len(inner) - len(own)) + own
        dims: list[int] = []
        for (first, last), (start, stop) in runs:
            part = own[first:last]
            if part == inner[first:last]:
                dims += wanted[start:stop]
            elif all(extent == 1 for extent in part):
                dims += (1,) * (stop - start)
            else:
                return None
        found.append(tuple(dims))
    return tuple(found)


def _runs(inner: Dims, wanted: Dims) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    runs, first, start = [], 0, 0
    while first < len(inner) or start < len(wanted):
        last, stop = first, start
        mine = theirs = 1
        while (last == first and stop == start) or mine != theirs:
            if mine <= theirs and last < len(inner):
                mine *= inner[last]
                last += 1
            elif stop < len(wanted):
                theirs *= wanted[stop]
                stop += 1
            else:
                mine *= inner[last]
                last += 1
        runs.append(((first, last), (start, stop)))
        first, start = last, stop
    return runs


def view_shape(shape: torch.Size, wanted: tuple) -> torch.Size | None:
    """The shape that ``view(*wanted)`` gives a tensor (E, ...) of ``shape``; None where dimension 0 would not stay."""
    if len(wanted) == 1 and isinstance(wanted[0], (tuple, list)):
        wanted = tuple(wanted[0])
    if not wanted or any(type(extent) not in _EXTENTS or extent < -1 for extent in wanted) or wanted.count(-1) > 1:
        return None
    if -1 in wanted:
        known = -prod(wanted)
        total = prod(shape)
        if known == 0 or total % known:
            return None
        wanted = tuple(total // known if extent == -1 else extent for extent in wanted)
    if wanted[0] != shape[0] or prod(wanted[1:]) != prod(shape[1:]):
        return None
    return torch.Size(wanted)


def unsqueezed(shape: torch.Size, dim: int) -> torch.Size | None:
    """The shape of ``unsqueeze(dim)``, or None where the new dimension would come first or there is no such one."""
    rank = len(shape) + 1
    if type(dim) is not int or not -rank <= dim < rank or dim % rank == 0:
        return None
    dim %= rank
    return torch.Size((*shape[:dim], 1, *shape[dim:]))


def squeezed(shape: torch.Size, dim: int) -> torch.Size | None:
    """The shape of ``squeeze(dim)``, or None for dimension 0 or where there is no such one."""
    rank = len(shape)
    if type(dim) is not int or not -rank <= dim < rank or dim % rank == 0:
        return None
    dim %= rank
    return shape if shape[dim] != 1 else torch.Size((*shape[:dim], *shape[dim + 1 :]))
