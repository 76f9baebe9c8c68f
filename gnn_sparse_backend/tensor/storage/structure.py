"""Coordinates to the arrays of a format, and back. Index arrays are NumPy's; values lie beside them, one a position.

A level takes the positions of the level above to its own. Whatever the levels are, a tensor is packed by going down
them once with its sorted coordinates, and read by going down them once with its arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul

import numpy as np

from ...compiler.language.types import INDEX_DTYPES
from ...frozen import dataclass
from ..errors import FormatError
from .format import Format, csc, csr


@dataclass(frozen=True, eq=False)
class LevelArrays:
    """What a level stores.

    Attributes:
        kind: of the level.
        extent: coordinates lie in [0, extent).
        positions: how many elements there are.
        offsets: of compressed levels, the first element under each element of the level above, and the number of all.
        indices: the coordinates of all but dense levels.
        width: of slots, how many there are under each element of the level above.
    """

    kind: str
    extent: int
    positions: int
    offsets: np.ndarray | None = None
    indices: np.ndarray | None = None
    width: int = 0


def dense_levels(extents: Sequence[int], above: int = 1) -> list[LevelArrays]:
    """Dense levels of these extents, the first under `above` positions."""
    positions = list(accumulate(extents, mul, initial=above))[1:]
    return [LevelArrays("dense", extent, number) for extent, number in zip(extents, positions)]


@dataclass(frozen=True, eq=False)
class Structure:
    """Where the elements of a tensor are stored: all of it but their values.

    Attributes:
        mask: of formats that have one, whether each position is stored, as uint8.
    """

    format: Format
    shape: tuple[int, ...]
    levels: tuple[LevelArrays, ...]
    mask: np.ndarray | None = None

    @property
    def positions(self) -> int:
        """The number of values."""
        return self.levels[-1].positions if self.levels else 1

    @property
    def index_dtype(self) -> str:
        """The type of the index arrays; "int32" where there is none."""
        found = [a for level in self.levels for a in (level.offsets, level.indices) if a is not None]
        return str(found[0].dtype) if found else "int32"

    @property
    def count(self) -> int:
        """The number of elements: positions, but slots and masked places."""
        if any(level.kind == "slots" for level in self.levels):
            return int(self.coordinates()[1].size)
        return self.positions if self.mask is None else int(np.count_nonzero(self.mask))

    def permuted(self, modes: Sequence[int]) -> Structure:
        """The structure of the transposed tensor, whose mode n is mode modes[n] of this one; the arrays are shared."""
        shape = tuple(self.shape[mode] for mode in modes)
        return Structure(self.format.permuted(modes), shape, self.levels, self.mask)

    def coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """(int64 coordinates of shape (modes, elements), position of each element), in the order of storage."""
        parents = np.zeros(1, np.int64)
        columns: list[np.ndarray] = []
        for level in self.levels:
            step, parents, column = expand(level, parents)
            columns = [each[step] for each in columns] + [column]
        stored = np.ones(len(parents), bool)
        for level, column in zip(self.levels, columns):
            if level.kind == "slots":
                stored &= column >= 0
        if self.mask is not None:
            stored &= self.mask[parents] != 0
        if not stored.all():
            parents, columns = parents[stored], [each[stored] for each in columns]
        return _to_modes(self.format, self.shape, columns, len(parents)), parents


def expand(level: LevelArrays, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(which element of the level above, position, coordinate) of each element under the positions `parents`."""
    if level.kind == "singleton":
        assert level.indices is not None
        return np.arange(len(parents)), parents, level.indices[parents].astype(np.int64)
    if level.kind in ("dense", "slots"):
        width = level.extent if level.kind == "dense" else level.width
        step = np.repeat(np.arange(len(parents)), width)
        slot = np.tile(np.arange(width), len(parents))
        positions = parents[step] * width + slot
        return step, positions, slot if level.indices is None else level.indices[positions].astype(np.int64)
    assert level.offsets is not None and level.indices is not None
    first = level.offsets[parents].astype(np.int64)
    counts = level.offsets[parents + 1].astype(np.int64) - first
    step = np.repeat(np.arange(len(parents)), counts)
    ends = np.cumsum(counts)
    positions = np.arange(int(counts.sum())) + np.repeat(first - (ends - counts), counts)
    return step, positions, level.indices[positions].astype(np.int64)


def by_rows(
    format: Format, shape: Sequence[int], offsets: np.ndarray, indices: np.ndarray, index_dtype: str | None = None
) -> Structure:
    """The structure of a matrix with a dense first level and a compressed second, of arrays that are known to be right
    and are shared where they have the type. Raises FormatError for what the index type cannot count.
    """
    rows, columns = extents(format, shape)
    dtype = index_dtype_of(format, shape, max(rows, columns, len(indices)), index_dtype)
    levels = (
        LevelArrays("dense", rows, rows),
        LevelArrays(
            "compressed", columns, len(indices), offsets.astype(dtype, copy=False), indices.astype(dtype, copy=False)
        ),
    )
    return Structure(format, tuple(int(n) for n in shape), levels)


def turns(structure: Structure, wanted: Format) -> bool:
    """Whether `turned` makes one of the other: a matrix by rows and one by columns."""
    return {structure.format, wanted} == {csr, csc}


def turned(structure: Structure, wanted: Format, values: np.ndarray) -> tuple[Structure, np.ndarray]:
    """A matrix by rows of one by columns, or the other way round. values: a number for each element, moved with it."""
    from scipy.sparse import csr_array  # which sorts by counting

    outer, inner = structure.levels
    found = csr_array((values, inner.indices, inner.offsets), shape=(outer.extent, inner.extent)).tocsc()
    return by_rows(wanted, structure.shape, found.indptr, found.indices, structure.index_dtype), found.data


def extents(format: Format, shape: Sequence[int]) -> tuple[int, ...]:
    """The number of coordinates of each level."""
    order = format.modes_in_order
    sizes = [int(shape[mode]) for mode in order]
    if format.block is not None:
        sides = [format.block[mode] for mode in order]
        return (*(-(-size // side) for size, side in zip(sizes, sides)), *sides)
    if format.diagonals:
        return max(sizes[0] + sizes[1] - 1, 0), sizes[0]
    return tuple(sizes)


def to_levels(format: Format, shape: Sequence[int], coordinates: np.ndarray) -> list[np.ndarray]:
    columns = [coordinates[mode] for mode in format.modes_in_order]
    if format.block is not None:
        sides = [format.block[mode] for mode in format.modes_in_order]
        return [c // b for c, b in zip(columns, sides)] + [c % b for c, b in zip(columns, sides)]
    if format.diagonals:
        first, second = columns
        return [second - first + shape[format.modes_in_order[0]] - 1, first]
    return columns


def _to_modes(format: Format, shape: Sequence[int], columns: list[np.ndarray], count: int) -> np.ndarray:
    if format.block is not None:
        sides = [format.block[mode] for mode in format.modes_in_order]
        columns = [columns[n] * sides[n] + columns[n + 2] for n in range(2)]
    elif format.diagonals:
        diagonal, first = columns
        columns = [first, diagonal + first - (shape[format.modes_in_order[0]] - 1)]
    found = np.empty((format.modes, count), np.int64)
    for mode, column in zip(format.modes_in_order, columns):
        found[mode] = column
    return found


def check_index_dtype(given: object) -> None:
    """Raise FormatError for what is no type of index arrays, nor None."""
    if given is not None and not (isinstance(given, str) and given in INDEX_DTYPES):
        raise FormatError(f"index_dtype {given!r:.60} is not 'int32' or 'int64'")


def index_dtype_of(format: Format, shape: Sequence[int], largest: int, given: str | None) -> str:
    """The type of index arrays that count up to ``largest``. Raises FormatError where the given one cannot."""
    dtype = given or ("int32" if largest <= np.iinfo(np.int32).max else "int64")
    if largest > np.iinfo(dtype).max:
        raise FormatError(
            f"a {format} of shape {tuple(shape)} counts up to {largest}, more than {dtype} can; use int64"
        )
    return dtype


def pack(
    format: Format, shape: Sequence[int], coordinates: np.ndarray, index_dtype: str | None = None
) -> tuple[Structure, np.ndarray]:
    """The structure of elements at different coordinates, and the position of each of them.

    Args:
        coordinates: int64, of shape (modes, elements), each within the shape, no two the same.
        index_dtype: "int32" or "int64"; int32 where everything fits, if None.

    Raises FormatError for what the index type cannot count.
    """
    columns, sizes = to_levels(format, shape, coordinates), extents(format, shape)
    count = coordinates.shape[1]
    by_place = None if is_ascending(columns) else _in_order(columns)
    columns = columns if by_place is None else [column[by_place] for column in columns]
    positions, number, made = np.zeros(count, np.int64), 1, []
    for kind, extent, column in zip(format.levels, sizes, columns):
        level, positions = _packed(kind, extent, column, positions, number)
        number = level.positions
        made.append(level)
    largest = max([*(level.extent for level in made), *(level.positions for level in made), 0])
    dtype = index_dtype_of(format, shape, largest, index_dtype)
    mask = None
    if format.masked:
        mask = np.zeros(number, np.uint8)
        mask[positions] = 1
    at = positions
    if by_place is not None:
        at = np.empty(count, np.int64)
        at[by_place] = positions
    return Structure(format, tuple(int(n) for n in shape), tuple(_cast(level, dtype) for level in made), mask), at


def _packed(
    kind: str, extent: int, column: np.ndarray, parents: np.ndarray, number: int
) -> tuple[LevelArrays, np.ndarray]:
    """A level under `number` positions, of elements sorted by their parents and coordinates, and their positions."""
    if kind == "dense":
        return LevelArrays(kind, extent, number * extent), parents * extent + column
    if kind == "singleton":
        return LevelArrays(kind, extent, number, None, column), parents
    if kind == "compressed-nonunique":
        begins = np.ones(len(column), bool)
    else:
        begins = np.ones(len(column), bool)
        begins[1:] = (parents[1:] != parents[:-1]) | (column[1:] != column[:-1])
    found = np.cumsum(begins) - 1
    counts = np.bincount(parents[begins], minlength=number)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if kind != "slots":
        return LevelArrays(kind, extent, int(offsets[-1]), offsets, column[begins]), found
    width = int(counts.max(initial=1))  # at least one, so that loops over slots have an extent
    at = parents * width + (found - offsets[parents])
    indices = np.full(number * width, -1, np.int64)
    indices[at] = column
    return LevelArrays(kind, extent, number * width, None, indices, width), at


def _cast(level: LevelArrays, dtype: str) -> LevelArrays:
    offsets, indices = (None if a is None else a.astype(dtype) for a in (level.offsets, level.indices))
    return LevelArrays(level.kind, level.extent, level.positions, offsets, indices, level.width)


def is_ascending(columns: Sequence[np.ndarray]) -> bool:
    """Whether the coordinates come in their order, the first column first, none of them twice."""
    if not columns or len(columns[0]) < 2:
        return True
    later = np.zeros(len(columns[0]) - 1, bool)
    for column in reversed(columns):
        later = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & later)
    return bool(later.all())


def numbered(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the number of each coordinate among the different ones, which come in their order; where each is first).

    at: (modes, elements).
    """
    order = _in_order(at)
    by_place = at[:, order]
    first = np.ones(at.shape[1], bool)
    first[1:] = (by_place[:, 1:] != by_place[:, :-1]).any(0)
    number = np.empty(at.shape[1], np.int64)
    number[order] = np.cumsum(first) - 1
    return number, order[first]


def _in_order(columns: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Which coordinate comes first, second and so on; columns: of each mode, outermost first."""
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    if math.prod(sizes) > np.iinfo(np.int64).max:
        return np.asarray(np.lexsort(columns[::-1]))
    key = columns[0]
    for column, size in zip(columns[1:], sizes[1:]):
        key = key * size + column
    return np.asarray(np.argsort(key, kind="stable"))  # which merges what is partly in order
