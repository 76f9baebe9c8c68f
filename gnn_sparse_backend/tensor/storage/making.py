"""Tensors made of whatever holds one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .format import as_format
from .reading import read, rows_of_scipy, same_shape
from .stored import GivenFormat, Stored, of_dense
from .structure import by_rows, check_index_dtype, numbered, pack
from .values import checked, spread, summed, to_dtype


def make(
    x: Any,
    format: GivenFormat = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    index_dtype: str | None = None,
    duplicates: str = "sum",
) -> Stored:
    """A tensor in a format; arguments and errors are those of `array`."""
    if not isinstance(duplicates, str) or duplicates not in ("sum", "refuse"):
        raise ValueError(f"duplicates {duplicates!r:.60} is not 'sum' or 'refuse'")
    check_index_dtype(index_dtype)
    if isinstance(x, Stored):
        same_shape(x.shape, shape)
        return x.to(format, dtype=dtype, index_dtype=index_dtype)
    if (compressed := rows_of_scipy(x)) is not None:
        same_shape(tuple(map(int, x.shape)), shape)
        named, offsets, indices = compressed
        structure = by_rows(named, x.shape, offsets, indices, index_dtype)
        stored = Stored(structure, checked(x.data, "x"))
        return stored if format is None and dtype is None else stored.to(format, dtype=dtype, index_dtype=index_dtype)
    found = read(x, shape, duplicates)
    values = checked(found.values, "x")
    if dtype is not None:
        values = to_dtype(values, dtype)
    if found.coordinates is None:
        whole = of_dense(values)
        return whole if format is None else whole.to(format, index_dtype=index_dtype)
    wanted = as_format(found.format if format is None else format, len(found.shape))
    at, group = _merged(found.coordinates, found.shape, duplicates)
    values = values if group is None else summed(values, group, at.shape[1])
    structure, places = pack(wanted, found.shape, at, index_dtype)
    return Stored(structure, spread(values, places, structure.positions))


def _merged(at: np.ndarray, shape: tuple[int, ...], duplicates: str) -> tuple[np.ndarray, np.ndarray | None]:
    """(coordinates that are all different, which of them each given one is; None where they were so before)."""
    group, first = numbered(at)
    if len(first) == at.shape[1]:
        return at, None
    if duplicates == "refuse":
        again = np.setdiff1d(np.arange(at.shape[1]), first)[0]
        found = tuple(int(n) for n in at[:, again])
        raise ValueError(f"the coordinate {found} occurs more than once; duplicates='sum' adds such values up")
    return at[:, first], group
