"""Reductions of tensors over modes, with NumPy's meaning: what is not stored is zero, and counts."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from .expressions.kernel import kernel_of
from .expressions.notation import Access, Statement
from .operators import LETTERS, Arithmetic
from .semirings import ORDINARY, SEMIRINGS
from .storage.stored import Stored, of_dense
from .storage.values import FLOATS, Values, integer, is_recorded, is_tensor

if TYPE_CHECKING:
    from typing_extensions import Self

Axis = int | tuple[int, ...] | None


class Reductions(Arithmetic):
    """A tensor that can be reduced. Results are ordinary arrays."""

    def sum(self, axis: Axis = None, dtype: None = None, out: None = None, *, keepdims: bool = False) -> Self:
        """The sum over one mode, several or, if None, all; of integers in int64. keepdims: they stay, with an extent of
        1. dtype, out: None, as NumPy's ``sum`` gives them.
        """
        modes = self._modes("sum", axis, dtype, out)
        wide = self if self.dtype in FLOATS else self.to(dtype="int64")
        return wide._reduced(modes)._kept(self, modes, keepdims)

    def mean(self, axis: Axis = None, dtype: None = None, out: None = None, *, keepdims: bool = False) -> Self:
        """The mean over modes, of all their elements; of integers in float64. Arguments are those of `sum`."""
        modes = self._modes("mean", axis, dtype, out)
        wide = self if self.dtype in FLOATS[2:] else self.to(dtype="float32" if self.dtype in FLOATS else "float64")
        found = wide._reduced(modes)
        found = found.with_values(found.values / self._count(modes))
        return (found.to(dtype=self.dtype) if self.dtype in FLOATS else found)._kept(self, modes, keepdims)

    def max(self, axis: Axis = None, out: None = None, *, keepdims: bool = False) -> Self:
        """The greatest element over modes, NaN where there is one. Elements that are not stored are zero. Arguments are
        those of `sum`. Gradients are shared by equal elements, as those of PyTorch's ``amax``.

        Raises ValueError where there are no elements.
        """
        return self._extreme("max", axis, out, keepdims)

    def min(self, axis: Axis = None, out: None = None, *, keepdims: bool = False) -> Self:
        """The least element over modes; otherwise as `max`."""
        return self._extreme("min", axis, out, keepdims)

    def any(self, axis: Axis = None, out: None = None, *, keepdims: bool = False) -> Self:
        """Whether an element over modes is not zero. Arguments are those of `sum`."""
        modes = self._modes("any", axis, None, out)
        found = self._nonzero()._reduced(modes)
        return found.with_values(found.values > 0)._kept(self, modes, keepdims)

    def all(self, axis: Axis = None, out: None = None, *, keepdims: bool = False) -> Self:
        """Whether no element over modes is zero. Arguments are those of `sum`."""
        modes = self._modes("all", axis, None, out)
        found = self._nonzero()._reduced(modes)
        return found.with_values(found.values == self._count(modes))._kept(self, modes, keepdims)

    def _extreme(self, name: str, axis: Axis, out: None, keepdims: bool) -> Self:
        modes = self._modes(name, axis, None, out)
        if not self._count(modes):
            raise ValueError(f"{name} over axis {axis} of the shape {self.shape} has no elements to choose from")
        if not modes:
            return self
        if self.dtype == "bool":
            return (self.any if name == "max" else self.all)(axis, keepdims=keepdims)
        known = type(self)(self.structure, self.values.detach()) if is_tensor(self.values) else self
        found = known._reduced(modes, f"{name}_times")
        absent = self._absent(modes)
        if absent is not None:
            found = found.with_values(_or_zero(name, found.values, absent))
        if is_recorded(self.values):
            from .gradients import recorded_extreme

            found = found.with_values(recorded_extreme(self, found, modes, absent))
        return found._kept(self, modes, keepdims)

    def _modes(self, name: str, axis: Any, dtype: object, out: object) -> tuple[int, ...]:
        """The modes that an axis names. Raises TypeError and ValueError."""
        if dtype is not None or out is not None:
            raise TypeError(f"the {name} of an array is in its own type and memory; take A.to(dtype=...).{name}(axis)")
        given = range(self.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
        whole = [mode for mode in map(integer, given) if mode is not None]
        if len(whole) < len(given):
            raise TypeError(f"axis {axis!r} is not an integer, several in a tuple, or None")
        modes = tuple(mode + self.ndim if mode < 0 else mode for mode in whole)
        if len(set(modes)) < len(modes) or not set(modes) <= set(range(self.ndim)):
            raise ValueError(f"axis {axis} names modes of {self.ndim}, each once, from 0 or from -1")
        return modes

    def _count(self, modes: tuple[int, ...]) -> int:
        """The number of elements that are reduced to one."""
        return math.prod(self.shape[mode] for mode in modes)

    def _reduced(self, modes: tuple[int, ...], semiring: str = ORDINARY) -> Self:
        """What is stored, added up over modes."""
        return self._run(*self._over(modes), SEMIRINGS[semiring], A=self)

    def _over(self, modes: tuple[int, ...]) -> tuple[tuple[str, ...], Access]:
        """(the indices of the result, what is reduced)."""
        letters = tuple(LETTERS[: self.ndim])
        return tuple(letter for mode, letter in enumerate(letters) if mode not in modes), Access("A", letters)

    def _nonzero(self) -> Self:
        return type(self)(self.structure, self.values != 0)

    def _absent(self, modes: tuple[int, ...]) -> np.ndarray | None:
        """For each element of the result the number of those that are not stored; None where all are."""
        if self.format.is_dense:
            return None
        result, access = self._over(modes)
        ones = Stored(self.structure, np.broadcast_to(np.ones(1, np.int64), (self.structure.positions,)))
        kernel, given = kernel_of(Statement(Access("R", result), access), {"A": ones}, None, frozenset("A"))
        absent: np.ndarray = self._count(modes) - kernel.run(given).values
        return absent if absent.any() else None

    def _kept(self, whole: Stored, modes: tuple[int, ...], keepdims: bool) -> Self:
        """A result with the modes that were reduced, where they are to stay."""
        if not keepdims or not modes:
            return self
        shape = tuple(1 if mode in modes else extent for mode, extent in enumerate(whole.shape))
        kept = of_dense(self.to("dense").values.reshape(shape))
        return type(self)(kept.structure, kept.values)


def _or_zero(name: str, values: Values, absent: np.ndarray) -> Values:
    """Extremes of what is stored, and of zero where there is more; NaN stays."""
    library: Any = sys.modules["torch"] if is_tensor(values) else np
    choose = library.maximum if name == "max" else library.minimum
    some = library.asarray(absent > 0)
    return library.where(some, choose(values, library.zeros_like(values)), values)
