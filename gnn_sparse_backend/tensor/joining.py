"""Arrays put together of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .array import Array, array
from .parts.indexing import index_dtype_like
from .parts.reshaping import of_modes
from .storage.stored import packed
from .storage.values import concatenated, integer


def stack(arrays: Sequence[Any], axis: int = 0) -> Array:
    """Put arrays of one shape at the coordinates of a new mode.

    Args:
        arrays: in a list or tuple: each whatever `array` takes.
        axis: the new mode, from 0 or from -1.

    The format is that of the first array, with one mode more where it is dense or csf; otherwise coo. The type is that
    of the values, promoted as NumPy does. Raises TypeError, and ValueError for shapes that are not one.
    """
    given = _arrays(arrays, "stack")
    own = given[0].shape
    mode = _mode(axis, len(own) + 1)
    for n, x in enumerate(given):
        if x.shape != own:
            raise ValueError(f"array {n} has the shape {x.shape}, and array 0 {own}; stack wants one shape")
    return _joined(given, (*own[:mode], len(given), *own[mode:]), lambda n, at: np.insert(at, mode, n, axis=0))


def concatenate(arrays: Sequence[Any], axis: int = 0) -> Array:
    """Put arrays one behind the other along a mode.

    Args:
        arrays: in a list or tuple: each whatever `array` takes, of one shape but for this mode.
        axis: the mode, from 0 or from -1.

    The format is that of the first array; the type is that of the values, promoted as NumPy does. Raises TypeError, and
    ValueError for shapes that do not fit.
    """
    given = _arrays(arrays, "concatenate")
    own = given[0].shape
    if not own:
        raise ValueError("arrays without modes are not concatenated; use stack")
    mode = _mode(axis, len(own))
    for n, x in enumerate(given):
        if x.shape[:mode] + x.shape[mode + 1 :] != own[:mode] + own[mode + 1 :]:
            raise ValueError(
                f"array {n} has the shape {x.shape}, and array 0 {own}; they may differ in axis {mode} alone"
            )
    begins = np.cumsum([0, *(x.shape[mode] for x in given)])

    def moved(n: int, at: np.ndarray) -> np.ndarray:
        at[mode] += begins[n]
        return at

    return _joined(given, (*own[:mode], int(begins[-1]), *own[mode + 1 :]), moved)


def _arrays(arrays: Any, wanted: str) -> list[Array]:
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"{wanted} takes arrays in a list or tuple, not {arrays!r:.60}")
    if not arrays:
        raise ValueError(f"{wanted} takes one array or more, and none is given")
    return [x if isinstance(x, Array) else array(x) for x in arrays]


def _mode(axis: Any, modes: int) -> int:
    mode = integer(axis)
    if mode is None:
        raise TypeError(f"axis {axis!r:.60} is not an integer")
    if not -modes <= mode < modes:
        raise ValueError(f"axis {mode} is not one of {modes} modes, from 0 or from -1")
    return mode % modes


def _joined(given: list[Array], shape: tuple[int, ...], moved: Callable[[int, np.ndarray], np.ndarray]) -> Array:
    """Arrays in one. moved: coordinates of the n-th array to those of the result."""
    wanted = of_modes(given[0].format, len(shape))
    elements = [x.elements(wanted) for x in given]
    at = np.concatenate([moved(n, each) for n, (each, _) in enumerate(elements)], 1)
    values = concatenated([values for _, values in elements])
    return Array(*packed(wanted, shape, at, values, index_dtype_like(*given)))
