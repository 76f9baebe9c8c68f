"""Arrays of levels that come from elsewhere, looked at before any kernel follows them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...compiler.language.types import INDEX_DTYPES
from ..errors import FormatError
from ..storage.format import Format
from ..storage.structure import LevelArrays, Structure, extents, is_ascending, to_levels

GivenArrays = tuple[np.ndarray | None, np.ndarray | None]


def structure_of(
    format: Format, shape: tuple[int, ...], arrays: Sequence[GivenArrays], mask: np.ndarray | None
) -> Structure:
    """The structure of the offsets and indices of each level. Raises FormatError where they are not those of one."""
    if len(shape) != format.modes or min(shape, default=0) < 0:
        raise FormatError(f"shape {shape} is not that of a tensor in the format {format}")
    dtypes = {str(array.dtype) for pair in arrays for array in pair if array is not None}
    if len(dtypes) > 1 or not dtypes <= set(INDEX_DTYPES):
        raise FormatError(f"index arrays are of one type, int32 or int64, not {', '.join(sorted(dtypes))}")
    levels: list[LevelArrays] = []
    for n, (kind, extent, (offsets, indices)) in enumerate(zip(format.levels, extents(format, shape), arrays)):
        level = _level(kind, extent, levels[-1].positions if levels else 1, offsets, indices)
        if level is None:
            raise FormatError(f"the arrays of level {n}, {kind}, are not those of {extent} coordinates")
        levels.append(level)
    if (mask is not None) != format.masked or (mask is not None and mask.shape != (levels[-1].positions,)):
        raise FormatError(f"there is {'no' if mask is None else 'a'} mask, which is not what the format {format} has")
    found = Structure(format, shape, tuple(levels), None if mask is None else (mask != 0).astype(np.uint8))
    if not is_ascending(to_levels(format, shape, found.coordinates()[0])):
        raise FormatError("coordinates are not in the order of the levels, or occur more than once")
    return found


def _level(
    kind: str, extent: int, above: int, offsets: np.ndarray | None, indices: np.ndarray | None
) -> LevelArrays | None:
    """A level under `above` positions; None where the arrays are not those of one."""
    if kind == "dense":
        return LevelArrays(kind, extent, above * extent) if offsets is None and indices is None else None
    least = -1 if kind == "slots" else 0
    if indices is None or indices.ndim != 1 or ((indices < least) | (indices >= extent)).any():
        return None
    count = len(indices)
    if kind == "singleton":
        return LevelArrays(kind, extent, count, None, indices) if offsets is None and count == above else None
    if kind == "slots":
        width = max(count // above if above else 0, 1)
        if offsets is not None or count != above * width:
            return None
        free = indices.reshape(above, width) < 0
        return None if (free[:, :-1] & ~free[:, 1:]).any() else LevelArrays(kind, extent, count, None, indices, width)
    if offsets is None or offsets.shape != (above + 1,) or offsets[0] != 0 or offsets[-1] != count:
        return None
    return None if (offsets[1:] < offsets[:-1]).any() else LevelArrays(kind, extent, count, offsets, indices)
