"""A row of features in tiles: several of the same width, and one of what is left.

Accumulators become registers only if their width is static, so a tile has an axis of its own, and the statements for
the narrower last tile are written out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from ....compiler.language.axes import Axis, StageIError
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr, as_expr

STEP = "TW"
"""Name of the axis of the features that a product takes at a time."""
Tiles: TypeAlias = list[tuple[str, Axis, Axis | None]]


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
            yield suffix, axis, q * axis.static_length
        first = as_expr(several.static_length * axis.static_length)


@contextmanager
def each_term(
    p: ProgramBuilder, name: str, steps: Axis, step: Axis | None, columns: Axis
) -> Iterator[tuple[Expr, Expr, Expr, Callable[[Expr], Expr]]]:
    """An iteration `name` over the terms of a product and its columns: (step, feature of the left operand, column,
    place).

    With an axis `step` of several features, each of the `steps` takes as many as the axis has, and place(column) is
    where the feature's element stands among those of the step, column by column; without, a step is a feature, and a
    place is a column.
    """
    if step is None:
        with p.iterate(name, (steps, columns), "RS", ("i", "k")) as (i, k):
            yield i, i, k, lambda column: column
    else:
        width = step.static_length
        with p.iterate(name, (steps, step, columns), "RRS", ("i", "q", "k")) as (i, q, k):
            yield i, i * width + q, k, lambda column: column * width + q


def pairs_of_features(p: ProgramBuilder, program: str, features: int) -> tuple[Axis, Axis]:
    """(steps, step) of a product that takes features two at a time. Raises StageIError where they are odd."""
    if features % 2:
        raise StageIError(f"{program}: {features} features do not come two at a time")
    return p.dense_fixed("FP", features // 2), p.dense_fixed(STEP, 2)
