"""Masks of functions that say of tensors of places which pairs are allowed, and of dense tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ....compiler.cache.bounded import KernelCache, kept, shared
from ....structures.masks import Mask, Planes, full, padding
from ....structures.masks.asking import Allowed, Indexing
from ....structures.masks.block_masks import PAIRS
from ....structures.masks.blocks import Blocks, settled
from .arrangement import FEW
from .recognition import Unknown, contents_of

SIDE = 64
OF_FEW = 16
"""The side of blocks of few queries, which are the rows of one block of each of several heads."""
MOST_MASKS = 32
"""Functions of which the masks are kept."""
_known: KernelCache[object, Planes] = shared("masks of functions", MOST_MASKS)


@kept
def everything(queries: int, keys: int) -> Mask:
    """The mask of all pairs of so long sequences. A decoder asks for another one at every step, as keys are added."""
    return full((queries, keys), block=_side(queries))


def _side(queries: int) -> int:
    """The side of the blocks of a mask."""
    return SIDE if queries > FEW else OF_FEW


def planes_of(
    allowed: Allowed,
    shape: tuple[int, int],
    sizes: tuple[int, int],
    *,
    pair_by_pair: bool = False,
    begins: tuple[int, int] = (0, 0),
    present: Tensor | None = None,
) -> Planes:
    """The mask of a function, which is kept as long as what the function reads is not written to.

    shape: (queries, keys). sizes: (batch, heads). pair_by_pair: whether the function takes tensors without dimensions
    alone; one that broadcasts says itself whether sequences and heads differ. begins: the first query and key. present:
    (batch, keys) bool, which keys are there.
    """
    try:
        name = contents_of(allowed), shape, sizes, pair_by_pair, begins
    except Unknown:
        name = None
    found = None if name is None else _known.get(name)
    if found is None:
        found = _collected(_asked(allowed, shape, sizes, pair_by_pair, begins), shape)
        if name is not None:
            _known.keep(name, found)
    if present is None or bool(present.all()):
        return found
    if found.batch == 1:
        return found._replace(mask=found.mask & padding(present))
    return dense_planes(found.dense() & present[:, None, None, :])


def dense_planes(allowed: Tensor) -> Planes:
    """The mask of a (batch or 1, heads or 1, queries, keys) bool tensor."""
    queries, keys = allowed.shape[2:]
    return _collected(iter(allowed.split(_rows(keys), 2)), (queries, keys))


def over_pairs(function: Callable[..., Tensor], before: int) -> Callable[..., Tensor]:
    """A function of numbers, of one pair, as one of vectors of batches, heads, queries and keys, for all pairs. before:
    operands that come first, which have a number for each pair.
    """
    for place in (3, 2, 1, 0):
        own = tuple(0 if n == place else None for n in range(4))
        function = torch.vmap(function, (*(0,) * before, *own))
    return function


def _rows(keys: int) -> int:
    """Queries that are asked at a time: whole blocks."""
    return max(1, PAIRS // max(keys * SIDE, 1)) * SIDE


def _asked(
    allowed: Allowed, shape: tuple[int, int], sizes: tuple[int, int], pair_by_pair: bool, begins: tuple[int, int]
) -> Iterator[Tensor]:
    """What the function says of some queries after the other, (batch or 1, heads or 1, queries, keys)."""
    queries, keys = shape
    asked: Callable[..., Tensor] = allowed
    batch, heads, key = torch.arange(sizes[0]), torch.arange(sizes[1]), torch.arange(keys) + begins[1]
    if pair_by_pair:
        asked = over_pairs(allowed, 0)
    for query in (torch.arange(queries) + begins[0]).split(_rows(keys)):
        with torch.no_grad(), Indexing():
            if pair_by_pair:
                yield asked(batch, heads, query, key)
            else:
                found = asked(batch[:, None, None, None], heads[:, None, None], query[:, None], key)
                found = found.view(*(1,) * (4 - found.dim()), *found.shape)
                yield found.expand(-1, -1, query.numel(), keys)


def _collected(parts: Iterator[Tensor], shape: tuple[int, int]) -> Planes:
    """The mask of all parts."""
    side = _side(shape[0])
    rows, columns = (-(-size // side) for size in shape)
    batch = heads = 1
    begun, lines, across, tiles = 0, [], [], []
    for part in parts:
        batch, heads, queries = part.shape[:3]
        here = -(-queries // side)
        cells = torch.zeros(batch * heads, here * side, columns * side, dtype=torch.uint8)
        cells[:, :queries, : shape[1]] = part.flatten(0, 1)
        cells = cells.view(-1, here, side, columns, side).transpose(2, 3)
        plane, row, column = cells.amax((3, 4)).nonzero().unbind(1)
        lines.append(plane * rows + begun + row)
        across.append(column)
        tiles.append(cells[plane, row, column])
        begun += here
    line, column, stored = (torch.cat(each) if each else torch.zeros(0) for each in (lines, across, tiles))
    blocks = Blocks(shape, batch * heads, side, line, column, torch.arange(line.numel()), stored)
    return Planes(Mask._of_blocks(settled(blocks)), batch, heads)
