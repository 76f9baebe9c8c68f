"""Tensors of other shapes with the same elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..storage.format import Format, coo, csf, dense
from ..storage.stored import Stored, of_dense, packed
from ..storage.structure import Structure
from ..storage.values import Values, integer, integers
from .indexing import apart, index_dtype_like

MOST = np.iinfo(np.int64).max


def of_modes(format: Format, modes: int) -> Format:
    """Return the format if it has `modes` modes; else dense for dense, csf for csf, and coo for all others."""
    if format.modes == modes:
        return format
    if format.is_dense or not modes:
        return dense(modes)
    return csf(modes) if format == csf(format.modes) else coo(modes)


def reshaped(x: Stored, given: tuple[Any, ...]) -> tuple[Structure, Values]:
    """The structure and the values of `x.reshape(*given)`. Raises TypeError and ValueError."""
    shape = _shape(x.shape, given[0] if len(given) == 1 and integer(given[0]) is None else given)
    if x.format == dense(x.ndim):
        whole = of_dense(x.values.reshape(shape))
        return whole.structure, whole.values
    wanted = of_modes(x.format, len(shape))
    at, values = x.elements(wanted)
    numbers = np.ravel_multi_index(tuple(at), x.shape) if at.size else np.zeros(at.shape[1], np.int64)
    moved = np.array(apart(numbers, shape), np.int64).reshape(len(shape), len(numbers))
    return packed(wanted, shape, moved, values, index_dtype_like(x))


def _shape(own: tuple[int, ...], given: Any) -> tuple[int, ...]:
    """A shape of as many elements, -1 in it told by the others."""
    shape, count = integers(given, "shape"), math.prod(own)
    if count > MOST:
        raise ValueError(f"reshape numbers all elements there could be, and the shape {own} has more than 2**63 - 1")
    others = math.prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and others > 0 and count % others == 0:
        shape = tuple(count // others if n == -1 else n for n in shape)
    if min(shape, default=0) < 0 or math.prod(shape) != count:
        raise ValueError(f"shape {given!r:.60} is not one of the {count} elements that the shape {own} has")
    return shape
