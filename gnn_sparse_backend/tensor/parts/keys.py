"""Indices in square brackets, as NumPy reads them, to what they select of each mode.

Integers, slices, None and Ellipsis select of each mode by itself. Arrays of integers select points: they are broadcast
to one shape, and each of its places is one coordinate of every mode that has such an array. A mask is the arrays of the
coordinates where it is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...frozen import dataclass
from ..storage.structure import numbered
from ..storage.values import integer, is_bool, is_tensor


@dataclass(frozen=True, eq=False)
class Span:
    """The coordinates start, start + step, ... of a mode.

    Attributes:
        whole: whether they are all of the mode, in their order.
        kept: whether the result has the mode; it has not where one integer was given.
    """

    mode: int
    start: int
    step: int
    count: int
    whole: bool = False
    kept: bool = True

    @property
    def modes(self) -> tuple[int, ...]:
        """The modes that it selects of."""
        return (self.mode,)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents that it gives the result."""
        return (self.count,) if self.kept else ()

    def coordinates(self) -> np.ndarray:
        """What is selected, of shape (modes, coordinates)."""
        return (self.start + self.step * np.arange(self.count))[None]

    def find(self, columns: Sequence[np.ndarray]) -> tuple[np.ndarray | slice, np.ndarray]:
        """(which of some elements are selected, the number of each of them among the coordinates)."""
        if self.whole:
            return slice(None), columns[0]
        distance = columns[0] - self.start
        number = distance * self.step if abs(self.step) == 1 else distance // self.step
        which = np.flatnonzero((number >= 0) & (number < self.count) & (number * self.step == distance))
        return which, number[which]


@dataclass(frozen=True, eq=False)
class Points:
    """Coordinates of several modes together, of shape (modes, points); shape: that of the points in the result."""

    modes: tuple[int, ...]
    at: np.ndarray
    shape: tuple[int, ...]

    def coordinates(self) -> np.ndarray:
        """What is selected, of shape (modes, coordinates)."""
        return self.at

    def find(self, columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(which of some elements are selected, the number of each of them among the coordinates); an element comes as
        often as its coordinates do.
        """
        count = len(columns[0])
        keys = columns[0], self.at[0]
        if len(self.modes) > 1:
            number, _ = numbered(np.concatenate([np.stack(columns), self.at], 1))
            keys = number[:count], number[count:]
        order = np.argsort(keys[1], kind="stable")
        ascending = keys[1][order]
        first = np.searchsorted(ascending, keys[0], "left")
        times = np.searchsorted(ascending, keys[0], "right") - first
        which = np.repeat(np.arange(count), times)
        return which, order[np.arange(len(which)) + np.repeat(first - (np.cumsum(times) - times), times)]


Selection: TypeAlias = Span | Points


def selections(key: Any, shape: tuple[int, ...]) -> tuple[list[Selection], list[Selection | None]]:
    """(what is selected, each mode once; what gives modes to the result in its order, None for a new one of extent 1).

    Raises IndexError for what is out of the shape, TypeError for what is no index.
    """
    entries = [_entry(each) for each in (key if isinstance(key, tuple) else (key,))]
    named = sum(map(_modes_of, entries))
    if sum(each is Ellipsis for each in entries) > 1:
        raise IndexError(f"index {_shown(key)} has more than one Ellipsis")
    if named > len(shape):
        raise IndexError(f"index {_shown(key)} names {named} modes, and the shape {shape} has {len(shape)}")
    if not any(each is Ellipsis for each in entries):
        entries.append(Ellipsis)
    found: list[Selection] = []
    result: list[Selection | None] = []
    arrays: dict[int, np.ndarray] = {}
    together: dict[int, int] = {}  # what NumPy takes together with arrays: its place in the key, and in the result
    mode = 0
    for place, entry in enumerate(entries):
        if entry is None:
            result.append(None)
        elif isinstance(entry, np.ndarray):
            together[place] = len(result)
            for each in _masked(entry, shape[mode:]) if entry.dtype == bool else [entry]:
                arrays[mode] = _within(each, mode, shape)
                mode += 1
        else:
            for one in [slice(None)] * (len(shape) - named) if entry is Ellipsis else [entry]:
                span = _span(one, mode, shape)
                found.append(span)
                if span.kept:
                    result.append(span)
                else:
                    together[place] = len(result)
                mode += 1
    if arrays:
        points = _points(arrays)
        places = list(together)
        beside = places[-1] - places[0] == len(places) - 1
        result.insert(together[places[0]] if beside else 0, points)  # where NumPy puts them
        found.append(points)
    return found, result


def _entry(given: Any) -> Any:
    """One entry of a key: None, Ellipsis, a slice, an integer, or an array of integers or truth values."""
    if given is None or given is Ellipsis:
        return given
    if isinstance(given, slice):
        parts = given.start, given.stop, given.step
        whole = [None if each is None else integer(each) for each in parts]
        if any(one is None and each is not None for one, each in zip(whole, parts)):
            raise TypeError(f"index {_shown(given)} is a slice of what are not integers or None")
        if whole[2] == 0:
            raise ValueError(f"index {_shown(given)} is a slice of the step 0")
        return slice(*whole)
    is_array = getattr(given, "ndim", 0) > 0 or is_bool(given) or isinstance(given, bool)
    if not is_array and (number := integer(given)) is not None:
        return number
    found = _array(given)
    if found is None or found.ndim == 0 or found.dtype.kind not in "biu":
        raise TypeError(
            f"index {_shown(given)} is not an integer, a slice, None, Ellipsis, a mask, or an array or list of integers"
        )
    return found


def _array(given: Any) -> np.ndarray | None:
    if is_tensor(given):
        return np.asarray(given.detach().cpu().to_dense().numpy())
    if not hasattr(given, "__array__") and not isinstance(given, (list, tuple, range)):
        return None
    try:
        found = np.asarray(given)
    except ValueError:  # rows of different lengths
        return None
    return found if found.size or hasattr(given, "__array__") else found.astype(np.int64)


def _modes_of(entry: Any) -> int:
    """How many modes of the tensor an entry takes, Ellipsis aside."""
    if entry is None or entry is Ellipsis:
        return 0
    return entry.ndim if isinstance(entry, np.ndarray) and entry.dtype == bool else 1


def _masked(mask: np.ndarray, extents: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    if mask.shape != extents[: mask.ndim]:
        raise IndexError(
            f"a mask of the shape {mask.shape} selects of the extents {extents[: mask.ndim]}, not of others"
        )
    return mask.nonzero()


def _within(at: np.ndarray, mode: int, shape: tuple[int, ...]) -> np.ndarray:
    """Coordinates of a mode, from 0. Raises IndexError."""
    extent = shape[mode]
    wrong = at[(at < -extent) | (at >= extent)]
    if wrong.size:
        raise IndexError(f"index {wrong[0]} of mode {mode} is out of the shape {shape}")
    at = at.astype(np.int64)
    return np.where(at < 0, at + extent, at)


def _span(entry: slice | int, mode: int, shape: tuple[int, ...]) -> Span:
    if not isinstance(entry, slice):
        return Span(mode, int(_within(np.asarray(entry, object), mode, shape)), 1, 1, kept=False)
    selected = range(shape[mode])[entry]
    return Span(mode, selected.start, selected.step, len(selected), selected == range(shape[mode]))


def _points(arrays: dict[int, np.ndarray]) -> Points:
    try:
        wide = np.broadcast_arrays(*arrays.values())
    except ValueError:
        shapes = " and ".join(str(each.shape) for each in arrays.values())
        raise IndexError(f"index arrays of the shapes {shapes} do not broadcast to one") from None
    return Points(tuple(arrays), np.stack([each.reshape(-1) for each in wide]), wide[0].shape)


def _shown(key: Any) -> str:
    return f"{key!r:.60}"
