"""A part of a tensor, as an index in NumPy's manner selects it.

A tensor is read by going down its levels; what a mode does not select is left out at the level that stores it, so that
the levels below are read for the rest alone. Rows of CSR cost their own elements, and columns all.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ..errors import FormatError
from ..storage.format import Format, coo, dense
from ..storage.stored import Stored, of_dense, packed
from ..storage.structure import Structure, by_rows, expand
from ..storage.values import Values, taken
from .keys import Selection, Span, selections


def part(x: Stored, key: Any) -> tuple[Structure, Values]:
    """The structure and the values of `x[key]`; errors are those of `selections`."""
    found, result = selections(key, x.shape)
    if x.format.is_dense:
        whole = _of_dense(x, found, result)
        return whole.structure, whole.values
    wanted = _format(x.format, result)
    shape = [extent for each in result for extent in ((1,) if each is None else each.shape)]
    if (lines := _lines(x, found, result)) is not None:
        return by_rows(wanted, shape, *lines[:2], index_dtype_like(x)), lines[2]
    numbers, positions = _selected(x.structure, found)
    columns: list[np.ndarray] = []
    for each in result:
        if each is None:
            columns.append(np.zeros(len(positions), np.int64))
        else:
            columns += apart(numbers[each], each.shape)
    at, values = x.elements(wanted, np.array(columns, np.int64).reshape(len(shape), len(positions)), positions)
    return packed(wanted, shape, at, values, index_dtype_like(x))


def index_dtype_like(*given: Stored) -> str | None:
    """int64 for a tensor that is made of one that has it; None, the least that fits, for others."""
    return "int64" if any(x.index_dtype == "int64" for x in given) else None


def apart(numbers: np.ndarray, shape: tuple[int, ...]) -> list[np.ndarray]:
    """The coordinates in a shape of elements that are numbered in it."""
    return list(np.unravel_index(numbers, shape)) if numbers.size and len(shape) > 1 else [numbers] * len(shape)


def _of_dense(x: Stored, found: list[Selection], result: list[Selection | None]) -> Stored:
    strides, stride = {}, 1
    for mode in reversed(x.format.modes_in_order):
        strides[mode] = stride
        stride *= x.shape[mode]
    offsets = {each: np.tensordot([strides[mode] for mode in each.modes], each.coordinates(), 1) for each in found}
    places = np.zeros((), np.int64)
    for each in (*(one for one in found if one not in result), *result):
        offset = np.zeros(1, np.int64) if each is None else offsets[each].reshape(each.shape)
        places = np.add.outer(places, offset)
    return of_dense(taken(x.values, places.reshape(-1)).reshape(places.shape))


def _format(format: Format, result: list[Selection | None]) -> Format:
    """The format of the result: that of the tensor while its modes stay, else its levels of those that do, else coo."""
    modes = [each.modes[0] for each in result if each is not None and len(each.modes) == len(each.shape) == 1]
    extents = sum(1 if each is None else len(each.shape) for each in result)
    if len(modes) == extents == format.modes:
        return format.permuted(modes)
    if len(modes) == extents and not format.masked:
        left = [(kind, modes.index(mode)) for kind, mode in zip(format.levels, format.modes_in_order) if mode in modes]
        try:
            found = Format(tuple(kind for kind, _ in left), tuple(mode for _, mode in left))
        except FormatError:  # a level has lost the one that it stands under
            return coo(extents)
        if not found.is_dense:
            return found
    return coo(extents) if extents else dense(0)


def _lines(
    x: Stored, found: list[Selection], result: list[Selection | None]
) -> tuple[np.ndarray, np.ndarray, Values] | None:
    """(offsets, indices, values) of whole rows of a matrix that is stored by rows, or columns of one by columns, which
    need not be put in order; None of all else.
    """
    of_mode = {mode: each for each in found for mode in each.modes}
    if x.format.levels != ("dense", "compressed") or None in result:
        return None
    outer, inner = (of_mode[mode] for mode in x.format.modes_in_order)
    if not (isinstance(inner, Span) and inner.whole) or len(outer.shape) != 1 or len(outer.modes) != 1:
        return None
    level = x.structure.levels[1]
    assert level.offsets is not None and level.indices is not None
    if isinstance(outer, Span) and outer.step == 1:
        offsets = level.offsets[outer.start : outer.start + outer.count + 1]
        between = slice(int(offsets[0]), int(offsets[-1]))
        return offsets - offsets[0], level.indices[between], x.values[between]
    (chosen,) = outer.coordinates()
    counts = level.offsets[chosen + 1] - level.offsets[chosen]
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    positions = np.arange(offsets[-1]) + np.repeat(level.offsets[chosen] - offsets[:-1], counts)
    return offsets, level.indices[positions], taken(x.values, positions)


Carried: TypeAlias = dict[int | Selection, np.ndarray]
"""The coordinate of each element in a mode, or its number among the coordinates of a selection."""


def _selected(structure: Structure, found: list[Selection]) -> tuple[Carried, np.ndarray]:
    """(number of each element that is selected among the coordinates of each selection, position of each element)."""
    carried: Carried = {}
    if structure.format.masked:
        at, positions = structure.coordinates()
        carried.update(enumerate(at))
        for selection in found:
            carried, positions = _select(selection, carried, positions)
        return carried, positions
    of_mode = {mode: each for each in found for mode in each.modes}
    positions = np.zeros(1, np.int64)
    for level, mode in zip(structure.levels, structure.format.modes_in_order):
        selection = of_mode[mode]
        if level.kind == "dense" and len(selection.modes) == 1:
            (chosen,) = selection.coordinates()
            carried = _take(carried, np.repeat(np.arange(len(positions)), len(chosen)))
            carried[selection] = np.tile(np.arange(len(chosen)), len(positions))
            positions = np.add.outer(positions * level.extent, chosen).reshape(-1)
            continue
        step, positions, column = expand(level, positions)
        carried = {**_take(carried, step), mode: column}
        if level.kind == "slots":
            stored = np.flatnonzero(column >= 0)
            carried, positions = _take(carried, stored), positions[stored]
        if all(each in carried for each in selection.modes):
            carried, positions = _select(selection, carried, positions)
    return carried, positions


def _take(carried: Carried, which: np.ndarray | slice) -> Carried:
    return {key: column[which] for key, column in carried.items()}


def _select(selection: Selection, carried: Carried, positions: np.ndarray) -> tuple[Carried, np.ndarray]:
    """The elements that are selected."""
    which, number = selection.find([carried[mode] for mode in selection.modes])
    left = {key: column for key, column in carried.items() if key not in selection.modes}
    return {**_take(left, which), selection: number}, positions[which]
