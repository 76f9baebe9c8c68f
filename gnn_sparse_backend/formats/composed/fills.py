"""How full the blocks of a matrix are, and what formats would store of it, before any is made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ...frozen import dataclass
from ..counts import added_at, distinct, read
from ..structure import positions_of_rows, row_of_position
from .indices import NonZeros
from .layout import Layout
from .shares import shares
from .spec import FormatSpec


@dataclass(frozen=True)
class Stored:
    """Storage of a piece: the rows of its blocks, 1 where non-zeros stand alone, its number of slots, whether rows have
    equally many, and its format, "" of ``csr`` and square ``bsr``.
    """

    side: int
    slots: int
    alike: bool = False
    format: str = ""


def stored_values(
    indptr: Tensor, indices: Tensor, shape: tuple[int, int], candidates: Sequence[tuple[FormatSpec, ...]], fill: float
) -> tuple[int, list[tuple[Stored, ...]]]:
    """(distinct coordinates, the pieces that `decompose` would make for each candidate). Of ``csr``, and of square
    ``bsr`` with ``csr`` behind it or by itself, none is made: a side is sorted once, from the blocks of the side
    before. A candidate that leaves non-zeros, or refuses the matrix, has no pieces.
    """
    across = max(shape[1], 1)
    keys = row_of_position(indptr, indices.numel(), torch.int64) * across + indices
    if keys.numel() and not bool((keys[1:] > keys[:-1]).all()):
        keys, _ = distinct(keys)
    rows, columns = keys // across, keys % across
    sides = {specs[0].block[0] for specs in candidates if _in_squares(specs)}
    fills = dict(block_fills(rows, columns, shape[1], sides))
    matrix = NonZeros(rows, columns, shape, fill, False, indptr.dtype)
    return keys.numel(), [
        _stored(specs, keys.numel(), fills, fill) if _counted(specs) else _made(specs, matrix) for specs in candidates
    ]


def stripes(indptr: Tensor, indices: Tensor, height: int, most: int) -> tuple[Tensor, Tensor]:
    """(indptr, indices) of stripes of ``height`` rows, evenly spaced, with about ``most`` non-zeros in all; everything
    of a matrix that has no more. Blocks of sides that divide ``height`` are those of the matrix.
    """
    step, rows = indices.numel() // max(most, 1), indptr.numel() - 1
    if step < 2:
        return indptr, indices
    first = torch.arange(0, rows, height * step, device=indptr.device)
    taken = (first[:, None] + torch.arange(height, device=indptr.device)).view(-1)
    taken = taken[taken < rows]
    own, positions = positions_of_rows(indptr, taken)
    return own, indices.index_select(0, positions)


def _in_squares(specs: tuple[FormatSpec, ...]) -> bool:
    """Whether it is ``bsr`` of squares, by itself or with ``csr`` behind it."""
    first, *rest = specs
    return first.kind == "bsr" and len(set(first.block)) == 1 and [spec.kind for spec in rest] in ([], ["csr"])


def _counted(specs: tuple[FormatSpec, ...]) -> bool:
    """Whether what it stores is known of counts of blocks."""
    return _in_squares(specs) or [spec.kind for spec in specs] == ["csr"]


def _made(specs: tuple[FormatSpec, ...], matrix: NonZeros) -> tuple[Stored, ...]:
    """Storage of any formats, whose indices are found for that."""
    try:
        found = shares(matrix, specs)
    except ValueError:
        return ()
    return tuple(
        Stored(
            spec.block[0],
            math.prod(Layout(spec.rule, each.arrays, matrix.shape).values),
            spec.shape.alike,
            "" if _counted((spec,)) else spec.key,
        )
        for spec, each, _ in found
    )


def block_fills(rows: Tensor, columns: Tensor, across: int, sides: Iterable[int]) -> Iterable[tuple[int, Tensor]]:
    """For each side of square blocks the non-zeros of each block that has any, of distinct int64 coordinates."""
    at, counts, last = (rows, columns), torch.ones_like(rows), 1
    for side in sorted(sides):
        if side % last:
            at, counts, last = (rows, columns), torch.ones_like(rows), 1
        grid, step = max(-(-across // side), 1), side // last
        keys, which = distinct(at[0] // step * grid + at[1] // step)
        at, counts, last = (keys // grid, keys % grid), added_at(which, counts, keys.numel()), side
        yield side, counts


def _stored(specs: tuple[FormatSpec, ...], count: int, fills: dict[int, Tensor], fill: float) -> tuple[Stored, ...]:
    first, *rest = specs
    if first.kind == "csr":
        return (Stored(1, count),)
    side = first.block[0]
    own = fills[side]
    if not rest:
        return (Stored(side, own.numel() * side**2),)
    full = own >= fill * side**2
    blocks, taken = read(full.sum(), own[full].sum())
    found = Stored(side, blocks * side**2), Stored(1, count - taken)
    return tuple(piece for piece in found if piece.slots) or found[1:]
