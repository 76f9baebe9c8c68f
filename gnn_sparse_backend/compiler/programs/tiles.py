"""A row of features in tiles: several of the same width, and one of what is left.

Accumulators become registers only if their width is static, so a tile has an axis of its own, and the statements for
the narrower last tile are written out again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..coordinate.axes import Axis
from ..coordinate.builder import ProgramBuilder
from ..coordinate.expr import Expr, as_expr

Tiles = list[tuple[str, Axis, "Axis | None"]]


def tiles_of(p: ProgramBuilder, features: int, width: int, names: str) -> Tiles:
    """(suffix of names, axis of the columns of a tile, axis of such tiles): the whole tiles, then what is left.

    names: of the three axes: the columns of a whole tile, the whole tiles, the columns of the last one.
    """
    count, rest = divmod(features, width)
    tiles: Tiles = []
    if count:
        tiles.append(("", p.dense_fixed(names[0], width), p.dense_fixed(names[1], count)))
    if rest:
        tiles.append(("_rest", p.dense_fixed(names[2], rest), None))
    return tiles


def each_tile(p: ProgramBuilder, tiles: Tiles, name: str) -> Iterator[tuple[str, Axis, Expr]]:
    """(suffix, axis of its columns, its first column) of each, inside an iteration `name` over the whole tiles."""
    first: Expr = as_expr(0)
    for suffix, axis, several in tiles:
        if several is None:
            yield suffix, axis, first
            continue
        with p.iterate(name, (several,), "S", (f"{name}_q",)) as (q,):
            yield suffix, axis, q * axis.length
        first = as_expr(several.length * axis.length)


__all__ = ["Tiles", "each_tile", "tiles_of"]
