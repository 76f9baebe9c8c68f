"""Levels of a format as axes of stage I.

dense                 dense_fixed, a root; dense_variable, where levels with an index stand on both sides of it
compressed            sparse_variable; under a root of length 1, where it is the first
compressed-nonunique  the same, not unique
singleton             sparse_fixed of one slot
slots                 sparse_fixed, padded

First levels whose coordinates nobody asks for are one dense_fixed axis of all their elements, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...compiler import Axis, ProgramBuilder, Size
from ...frozen import dataclass
from ..storage.format import Format

Extent = int | Size
T = TypeVar("T")


@dataclass(frozen=True)
class LevelAxes:
    """The axes of a tensor.

    Attributes:
        root: the axis of length 1 above a first level that has an index; None elsewhere.
        levels: one for each level, but for `merged` first ones, which are one axis.
        arrays: by the name of an index array, (level, "offsets" or "indices", or "steps": the offsets of a
            dense_variable).
        sizes: by the name of a size, (level, "extent" or "positions").
    """

    root: Axis | None
    levels: tuple[Axis, ...]
    arrays: dict[str, tuple[int, str]]
    sizes: dict[str, tuple[int, str]]
    merged: int = 1

    @property
    def all(self) -> tuple[Axis, ...]:
        """Axes of a buffer of its values."""
        return self.levels if self.root is None else (self.root, *self.levels)

    @property
    def roots(self) -> int:
        """How many axes of one element are above the levels."""
        return 0 if self.root is None else 1

    def first(self, levels: int) -> tuple[Axis, ...]:
        """The axes of the first levels, with that above them."""
        return self.all[: self.roots + levels - self.merged + 1]

    def with_coordinates(self, along: Sequence[T]) -> list[tuple[Axis, T]]:
        """The axes that give coordinates, each with what belongs to its level; along: one for each level."""
        known = 0 if self.merged == 1 else 1
        return list(zip(self.levels[known:], along[self.merged - 1 + known :]))


def axes(
    builder: ProgramBuilder,
    name: str,
    format: Format,
    index_dtype: str = "int32",
    widths: Sequence[int] = (),
    extent: Callable[[int], Extent | Axis | None] = lambda level: None,
    merged: int = 1,
) -> LevelAxes:
    """Declare the axes of a tensor, with the sizes and index arrays that they need.

    Args:
        name: begins the names of all that is declared.
        widths: of each level of slots, how many there are.
        extent: the length of a level, or the dense root axis that it is; None for a size of its own.
        merged: number of first levels that are one axis.
    """
    made: list[Axis] = []
    arrays: dict[str, tuple[int, str]] = {}
    sizes: dict[str, tuple[int, str]] = {}
    root: Axis | None = None
    indexed = [at for at, kind in enumerate(format.levels) if kind != "dense"]
    slots = iter(widths)

    def size(level: int, what: str) -> Size:
        found = builder.size(f"{name}{level}_{what}")
        sizes[found.name] = (level, what)
        return found

    def array(level: int, what: str) -> str:
        arrays[f"{name}{level}_{what}"] = (level, what)
        return f"{name}{level}_{what}"

    def parent() -> Axis:
        nonlocal root
        if made:
            return made[-1]
        root = builder.dense_fixed(f"{name}_root", 1)
        return root

    if merged > 1:
        made.append(builder.dense_fixed(f"{name}elements", size(merged - 1, "positions")))
    for level, kind in list(enumerate(format.levels))[merged if merged > 1 else 0 :]:
        given = extent(level)
        own = f"{name}{level}"
        if kind == "dense" and (level == 0 or not indexed or indexed[-1] < level):
            if isinstance(given, Axis):  # of two levels with one index each has an axis
                made.append(builder.dense_fixed(own, given.length) if given in made else given)
            else:
                made.append(builder.dense_fixed(own, given or size(level, "extent")))
            continue
        pair: tuple[Extent, Extent]
        length = given.length if isinstance(given, Axis) else given or size(level, "extent")
        if kind == "dense":
            above = made[-1]
            pair = length, size(level, "positions")
            made.append(builder.dense_variable(own, above, pair, array(level, "steps"), index_dtype))
        elif kind == "singleton":
            pair = length, 1
            made.append(builder.sparse_fixed(own, parent(), pair, array(level, "indices"), index_dtype))
        elif kind == "slots":
            pair = length, next(slots)
            marks = dict(sorted=False, padded=True)
            made.append(builder.sparse_fixed(own, parent(), pair, array(level, "indices"), index_dtype, **marks))
        else:
            above, pair = parent(), (length, size(level, "positions"))
            names = array(level, "offsets"), array(level, "indices")
            unique = kind == "compressed"
            made.append(builder.sparse_variable(own, above, pair, names, index_dtype, unique=unique))
    return LevelAxes(root, tuple(made), arrays, sizes, merged)
