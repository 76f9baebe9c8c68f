"""What TACO itself computes for a case, by the C that it generates: benchmarks/algebra/taco.py."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from benchmarks.algebra.taco import Operand, build, notation, read
from gnn_sparse_backend import tensor as st
from tests.tensor.taco_cases import Case


@dataclass(frozen=True)
class Found:
    """A result. levels: (offsets, coordinates) of each compressed level, outermost first."""

    values: np.ndarray
    levels: list[tuple[np.ndarray, np.ndarray]]


def computed(case: Case, arrays: dict[str, st.Array]) -> Found:
    """The result of a case. Raises Unable where TACO is not there, or refuses."""
    result = case.expression.partition(" =")[0]
    name, letters = result.partition("[")[0], case.format
    formats = [f"{name}:{letters}", *(f"{operand}:{given}" for operand, (_, given) in case.operands.items())]
    formats = [format.replace("q", "p") for format in formats]
    sizes = dict(case.sizes)
    shape = [sizes[index] for index in result[len(name) :].strip("[]").split(",") if index]
    made = build(notation(case.expression), tuple(formats), "", "evaluate")
    held = Operand(shape, letters.partition(":")[0])
    given = {each: _operand(arrays[each], letters) for each, (_, letters) in case.operands.items()} | {name: held}
    made.library.evaluate(*(ctypes.byref(given[each].struct) for each in made.parameters))
    return _result(held, letters, shape)


def _operand(x: st.Array, letters: str) -> Operand:
    levels = []
    for level in x.structure.levels:
        if level.kind == "compressed":
            levels.append((level.offsets, level.indices))
        elif level.kind == "slots":  # a free slot has the coordinate 0 and the value 0
            places = np.maximum(level.indices, 0)
            levels.append((places, places))
    values = np.ascontiguousarray(x.values, dtype=np.float32).reshape(-1)
    return Operand(x.shape, letters.partition(":")[0].replace("q", "s"), levels, values)


def _result(held: Operand, letters: str, shape: list[int]) -> Found:
    """The levels of a result, read from the outermost on, and its values in an ordinary array."""
    kinds, _, order = letters.partition(":")
    modes = [int(mode) for mode in order.split(",")] if order else list(range(len(shape)))
    parents, columns, levels = np.zeros(1, int), [], []
    positions = 1
    for n, kind in enumerate(kinds):
        if kind == "d":
            extent = shape[modes[n]]
            step, column = np.repeat(np.arange(len(parents)), extent), np.tile(np.arange(extent), len(parents))
            parents, positions = parents[step] * extent + column, positions * extent
        else:
            offsets = read(held.modes[n][0], positions + 1, np.int32)
            indices = read(held.modes[n][1], int(offsets[-1]), np.int32)
            levels.append((offsets, indices))
            step, column = np.repeat(np.arange(len(parents)), np.diff(offsets)), indices
            parents, positions = np.arange(len(indices)), len(indices)
        columns = [*(each[step] for each in columns), column]
    values = np.zeros(shape, np.float32)
    places = np.empty(len(shape), object)
    for mode, column in zip(modes, columns):
        places[mode] = column
    stored = read(held.struct.vals, positions, np.float32)
    values[tuple(places)] = stored[parents] if shape else stored[0]
    return Found(values, levels)
