"""Functions of several tensors, element by element, that are no sums of products: computed by NumPy or PyTorch.

Where such a function is zero of zeros, it is computed of what any of the sparse tensors stores, otherwise of all.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..runtime.machine import MACHINE
from .expressions.specs import same_structure
from .storage.format import coo
from .storage.making import make
from .storage.stored import Stored, of_dense, packed
from .storage.structure import numbered
from .storage.values import Values, is_tensor, spread, taken

Operand: TypeAlias = Stored | bool | int | float | np.generic
"""A tensor, or a number."""
Function: TypeAlias = Callable[..., Values]


def operand(x: Any) -> Operand | None:
    """What stands beside a tensor: a number, or what becomes a tensor; None for anything else."""
    if isinstance(x, (bool, int, float, Stored)) or (isinstance(x, np.generic) and x.dtype.kind in "biuf"):
        return x
    if isinstance(x, (list, tuple)):
        return make(list(x))
    return make(x) if is_tensor(x) or hasattr(x, "__array__") or hasattr(x, "tocoo") else None


def is_sparse(x: Operand) -> bool:
    """Whether it stores some of its elements alone."""
    return isinstance(x, Stored) and not x.format.is_dense


def is_zero(x: Operand) -> bool:
    """Whether it is zero where nothing is stored."""
    return is_sparse(x) or (not isinstance(x, Stored) and bool(x == 0))


def elementwise(function: Function, *operands: Operand, sparse: bool) -> Stored:
    """A function of the elements of tensors and numbers, with NumPy's broadcasting.

    Args:
        function: of arrays, all of NumPy, or all of PyTorch where a tensor is, and numbers.
        sparse: whether it is zero where none of the sparse operands stores anything. The result is then stored where
            any of them does, in the format of the first one of its shape; otherwise it is an ordinary array.

    Raises ValueError for shapes that do not broadcast, and MemoryError for an ordinary array larger than memory.
    """
    tensors = [x for x in operands if isinstance(x, Stored)]
    shape = broadcast_shape(tensors)
    stored = [x for x in tensors if is_sparse(x)]
    if not sparse or not stored:
        _check_room(shape)
        return of_dense(_applied(function, [_whole(x) for x in operands]))
    first = stored[0]
    if len(stored) == len(tensors) and all(same_structure(x.structure, first.structure) for x in stored[1:]):
        return Stored(first.structure, _applied(function, [x.values if isinstance(x, Stored) else x for x in operands]))
    at, columns = _together(operands, shape)
    format = next((x.format for x in stored if x.shape == shape), None) or coo(len(shape))
    return Stored(*packed(format, shape, at, _applied(function, columns)))


def broadcast_shape(tensors: Sequence[Stored]) -> tuple[int, ...]:
    """The shape of a result. Raises ValueError."""
    try:
        return np.broadcast_shapes(*(x.shape for x in tensors))
    except ValueError:
        shapes = " and ".join(str(x.shape) for x in tensors)
        raise ValueError(f"shapes {shapes} do not broadcast") from None


def _check_room(shape: tuple[int, ...]) -> None:
    if (count := math.prod(shape)) > MACHINE:
        raise MemoryError(
            f"the result is not zero where nothing is stored, so that it is an ordinary array of the shape {shape}, "
            f"and {count:,} elements are more than this machine has memory for"
        )


def _whole(x: Operand) -> Any:
    """A tensor as an array of all its elements; a number as it is."""
    return x.to("dense").values.reshape(x.shape) if isinstance(x, Stored) else x


def _applied(function: Function, given: Sequence[Any]) -> Values:
    if any(map(is_tensor, given)):
        torch: Any = sys.modules["torch"]
        given = [torch.from_numpy(np.require(x, None, ["C", "W"])) if isinstance(x, np.ndarray) else x for x in given]
    return function(*given)


def _together(operands: Sequence[Operand], shape: tuple[int, ...]) -> tuple[np.ndarray, list[Any]]:
    """(the coordinates that any sparse operand stores, the value of each operand at these)."""
    repeated = {n: _repeated(x, shape) for n, x in enumerate(operands) if isinstance(x, Stored) and is_sparse(x)}
    every = np.concatenate([at for at, _ in repeated.values()], 1)
    number, first = numbered(every)
    found, columns, begin = every[:, first], list[Any](operands), 0
    for n, (at, values) in repeated.items():
        columns[n] = spread(values, number[begin : begin + at.shape[1]], len(first))
        begin += at.shape[1]
    for n, x in enumerate(operands):
        if isinstance(x, Stored) and not is_sparse(x):
            columns[n] = taken(_whole(x).reshape(-1), _places(x, found))
    return found, columns


def _repeated(x: Stored, shape: tuple[int, ...]) -> tuple[np.ndarray, Values]:
    """(coordinates, values) of a sparse tensor, repeated along the modes of a shape in which it has one element."""
    at, values = x.coordinates()
    own = (1,) * (len(shape) - x.ndim) + x.shape
    at = np.concatenate([np.zeros((len(shape) - x.ndim, at.shape[1]), np.int64), at])
    source = np.arange(at.shape[1])
    for mode, (extent, wanted) in enumerate(zip(own, shape)):
        if extent != wanted:
            source, at = np.repeat(source, wanted), np.repeat(at, wanted, 1)
            at[mode] = np.tile(np.arange(wanted), len(source) // max(wanted, 1))
    return at, values if len(source) == len(values) else taken(values, source)


def _places(x: Stored, at: np.ndarray) -> np.ndarray:
    """Where the elements at some coordinates lie in an ordinary array that is broadcast."""
    places = np.zeros(at.shape[1], np.int64)
    for extent, column in zip(x.shape, at[len(at) - x.ndim :]):
        places = places * extent + (column if extent != 1 else 0)
    return places
