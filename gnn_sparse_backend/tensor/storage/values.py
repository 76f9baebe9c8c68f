"""Values of arrays: NumPy's or PyTorch's, and the little that is done with either without knowing which.

PyTorch is imported by whoever has a tensor of it; nothing here imports it.
"""

from __future__ import annotations

import functools
import math
import operator
import reprlib
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...compiler.language.types import ACCUMULATOR
from ...runtime.machine import MACHINE
from ...runtime.pool import POOL, WORTHWHILE

Values: TypeAlias = Any
"""A NumPy array or a PyTorch tensor."""

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64")
DTYPES = (*FLOATS, *INTEGERS, "bool")


def fits(number: int | float, dtype: str) -> bool:
    """Whether a type has a number as large as this one."""
    if dtype in FLOATS:
        return isinstance(number, float) or abs(number) <= sys.float_info.max
    if dtype == "bool":
        return number in (0, 1)
    return bool(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max)


def is_tensor(x: object) -> bool:
    """Whether it is a tensor of PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_recorded(x: object) -> bool:
    """Whether what is computed of it remembers how, since gradients are asked for."""
    return is_tensor(x) and x.requires_grad and sys.modules["torch"].is_grad_enabled()  # type: ignore[attr-defined]


def integer(x: Any) -> int | None:
    """An integer, of Python, NumPy or whatever has one, as one of Python; None for anything else."""
    try:
        return operator.index(x)
    except TypeError:
        return None


def integers(given: Any, what: str) -> tuple[int, ...]:
    """Several integers, each as one of Python. Raises TypeError for anything else."""
    try:
        found = tuple(map(integer, given))
    except TypeError:
        found = (None,)
    whole = tuple(each for each in found if each is not None)
    if len(whole) < len(found):
        raise TypeError(f"{what} {given!r:.60} is not several integers")
    return whole


def dtype_name(x: Values) -> str:
    """The type of values, as "float32"."""
    return _name(x.dtype)


@functools.cache
def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def checked(x: Any, what: str) -> Values:
    """Values as they may be used: a PyTorch tensor on the CPU, or an array of NumPy, of a type in DTYPES.

    Raises TypeError.
    """
    if is_tensor(x):
        if x.device.type != "cpu":
            raise TypeError(f"{what} is on {x.device}; tensor algebra runs on the CPU: give {what}.cpu()")
    elif isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{what} is a masked array, whose mask would be lost; give {what}.filled(0), or another number")
    else:
        x = np.asarray(x)
        x = x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    if dtype_name(x) not in DTYPES:
        raise TypeError(f"{what} is of type {dtype_name(x)}; values are {', '.join(DTYPES)}")
    return x


def is_bool(x: object) -> bool:
    """Whether it holds truth values, of any library."""
    return str(getattr(x, "dtype", "")).rpartition(".")[2] == "bool"


def is_finite(values: Values) -> bool:
    """Whether all are numbers."""
    return bool(values.detach().isfinite().all()) if is_tensor(values) else bool(np.isfinite(values).all())


def promoted(names: list[str]) -> str:
    """The type that values of these types are computed in, by NumPy's rules; bfloat16 with float16 is float32."""
    found = sorted(set(names))
    if len(found) == 1:
        return found[0]
    if "bfloat16" in found:
        others = [name for name in found if name not in ("bfloat16", "bool")]
        if not others:
            return "bfloat16"
        return promoted(["float32" if name == "float16" else name for name in others] + ["float32"])
    return str(np.result_type(*found))


def dtype_beside(x: int | float, dtype: str) -> str:
    """The type of a number beside values of a type: theirs, if they are of the same kind."""
    if dtype in FLOATS:
        return dtype
    return "float64" if isinstance(x, float) else "int64" if dtype == "bool" else dtype


def number(x: int | float, dtype: str) -> Values:
    """A number as a value of a type, of PyTorch for what NumPy has not. Raises ValueError where the type has none as
    large.
    """
    if fits(x, dtype):
        wide = float(x) if dtype in FLOATS else x
        with np.errstate(over="ignore"):
            found = to_dtype(sys.modules["torch"].tensor(wide) if dtype == "bfloat16" else np.asarray(wide), dtype)
        if math.isfinite(float(found)) or not math.isfinite(x):
            return found
    raise ValueError(
        f"the number {reprlib.repr(x)} does not fit {dtype}, the type of the operands; use .to(dtype=...) before"
    )


def zeros_like(values: Values, count: int) -> Values:
    """`count` zeros of the type and the library of `values`."""
    return values.new_zeros(count) if is_tensor(values) else np.zeros(count, values.dtype)


def empty_like(values: Values, count: int) -> Values:
    """`count` values of the type and the library of `values`, whatever they are; many of them in memory that earlier
    results have left.
    """
    if is_tensor(values):
        from ...runtime.memory import empty  # which imports PyTorch

        return empty(values, count)
    size = count * values.dtype.itemsize
    if size > MACHINE:
        raise MemoryError(
            f"a result of {count:,} elements of {values.dtype} takes {size:,} bytes, and this machine has {MACHINE:,}; "
            "give it a compressed format, or compute a part at a time"
        )
    if size < WORTHWHILE or not POOL.limit:
        return np.empty(count, values.dtype)
    return np.asarray(_Leased(POOL.lease(size), values.dtype, count))


class _Leased:
    """Memory of the pool as NumPy takes it: the array keeps this object, and with it the lease. NumPy would not keep a
    memoryview, but what the view shows alone.
    """

    def __init__(self, view: memoryview, dtype: Any, count: int) -> None:
        self._view = view
        address = np.frombuffer(view, np.uint8).ctypes.data
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (count,),
            "typestr": dtype.str,
            "version": 3,
        }


def spread(values: Values, positions: np.ndarray, count: int) -> Values:
    """`count` values, each the one that goes to its position; zero where none goes."""
    if is_tensor(values):
        return values.new_zeros(count).index_copy(0, _as_index(values, positions), values)
    out = np.zeros(count, values.dtype)
    out[positions] = values
    return out


def summed(values: Values, groups: np.ndarray, count: int) -> Values:
    """The sum of each of `count` groups, rounded once; groups: that of each value."""
    wide = to_dtype(values, ACCUMULATOR[dtype_name(values)])
    if is_tensor(wide):
        found = wide.new_zeros(count).index_add(0, _as_index(wide, groups), wide)
    else:
        found = np.zeros(count, wide.dtype)
        np.add.at(found, groups, wide)
    return to_dtype(found, dtype_name(values))


def concatenated(parts: Sequence[Values]) -> Values:
    """Values one behind the other, in the type that they are promoted to, as a tensor where one of them is."""
    dtype = promoted([dtype_name(each) for each in parts])
    if any(map(is_tensor, parts)):
        torch = sys.modules["torch"]
        return torch.cat([to_dtype(torch.as_tensor(each), dtype) for each in parts])
    return np.concatenate([to_dtype(each, dtype) for each in parts])


def taken(values: Values, positions: np.ndarray) -> Values:
    """The values at the positions."""
    return values[_as_index(values, positions)] if is_tensor(values) else values[positions]


def bits(values: Values) -> np.ndarray:
    """The values as integers of their width, of NumPy."""
    if is_tensor(values):
        values = argument(values)
        values = values.view(getattr(sys.modules["torch"], f"int{8 * values.element_size()}")).numpy()
    return np.ascontiguousarray(values).view(f"i{values.itemsize}")


def of_bits(numbers: np.ndarray, like: Values) -> Values:
    """The reverse of `bits`, in the type and the library of `like`."""
    return sys.modules["torch"].from_numpy(numbers).view(like.dtype) if is_tensor(like) else numbers.view(like.dtype)


def _as_index(values: Values, positions: np.ndarray) -> Any:
    return sys.modules["torch"].from_numpy(np.ascontiguousarray(positions, np.int64))


def to_dtype(values: Values, dtype: str) -> Values:
    """The values in another type. Raises TypeError for what is none."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise TypeError(f"dtype {dtype!r:.60} is not one of {', '.join(map(repr, DTYPES))}")
    if dtype_name(values) == dtype:
        return values
    if dtype == "bfloat16" and not is_tensor(values):
        raise TypeError("NumPy has no bfloat16; give values as a PyTorch tensor")
    if is_tensor(values):
        return values.to(getattr(sys.modules["torch"], dtype))
    return values.astype(dtype)


def buffer_dtype(dtype: str) -> str:
    """The type of a kernel's buffer of values of a type: truth values are bytes, 0 or 1."""
    return "uint8" if dtype == "bool" else dtype


def argument(values: Values) -> Values:
    """Values as a kernel takes them: contiguous, with no history, and, as DLPack wants of NumPy, writable. Truth values
    are taken as bytes.
    """
    if is_tensor(values):
        found = values.detach().resolve_conj().resolve_neg().contiguous()
        found = found.clone() if found._is_zerotensor() else found  # gradients that are zero have no memory
        return found.view(sys.modules["torch"].uint8) if dtype_name(found) == "bool" else found
    found = np.ascontiguousarray(values)
    found = found if found.flags.writeable else found.copy()
    return found.view(np.uint8) if found.dtype == np.bool_ else found
