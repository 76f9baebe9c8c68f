"""Comparisons of tensors and what is computed with truth values, element by element, as NumPy does both."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .elementwise import Operand, elementwise, is_sparse, is_zero, operand
from .expressions.notation import TRUTH, Access, Call, Operation
from .expressions.specs import same_structure
from .operators import LETTERS, Arithmetic
from .storage.stored import Stored
from .storage.values import FLOATS, dtype_name, is_tensor, to_dtype

if TYPE_CHECKING:
    from typing_extensions import Self

Operator = Callable[[Any, Any], Any]
COMPILED = {
    operator.lt: "<",
    operator.gt: ">",
    operator.ne: "!=",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "!=",
}
"""Signs of what is zero of zeros."""


class Comparisons(Arithmetic):
    """A tensor that can be compared.

    `A < B`, `<=`, `>`, `>=`, `==` and `!=` give arrays of truth values. What is not stored is zero: where a comparison
    does not hold of zeros, and no operand is an ordinary array, the result is sparse, with an element for each that an
    operand stores, as a sum has; otherwise it is an ordinary array. `A & B`, `A | B`, `A ^ B` and `~A` are of truth
    values; `&` is sparse where an operand is, `|` and `^` where both are.
    """

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> Self:
        return self._compared(operator.lt, other)

    def __le__(self, other: Any) -> Self:
        return self._compared(operator.le, other)

    def __gt__(self, other: Any) -> Self:
        return self._compared(operator.gt, other)

    def __ge__(self, other: Any) -> Self:
        return self._compared(operator.ge, other)

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return self._compared(operator.ne, other)

    def __and__(self, other: Any) -> Self:
        return self._of_truths("&", operator.and_, other)

    def __or__(self, other: Any) -> Self:
        return self._of_truths("|", operator.or_, other)

    def __xor__(self, other: Any) -> Self:
        return self._of_truths("^", operator.xor, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Self:
        _check_truths("~", self)
        return self._made(operator.invert, [self], False)

    def _compared(self, compare: Operator, other: Any) -> Self:
        if other is None and compare in (operator.eq, operator.ne):
            differs = compare is operator.ne  # as everything does from None
            return self._made(lambda x: (x == x) | True if differs else (x == x) & False, [self], not differs)
        beside = operand(other)
        if beside is None:
            return NotImplemented  # type: ignore[no-any-return]
        given: list[Operand] = [self, beside]
        zeros = [0 if is_sparse(x) else x for x in given]
        sparse = not any(isinstance(x, Stored) for x in zeros) and not compare(*zeros)
        if is_tensor(self.values) and self.dtype not in FLOATS and not isinstance(beside, Stored):
            # PyTorch would round the number to the type of the tensor
            given[0] = self.to(dtype="float64" if isinstance(beside, (float, np.floating)) else "int64")
        return self._made(compare, given, sparse)

    def _of_truths(self, sign: str, combine: Operator, other: Any) -> Self:
        beside = operand(other)
        if beside is None:
            return NotImplemented  # type: ignore[no-any-return]
        given: list[Operand] = [self, beside]
        for x in given:
            _check_truths(sign, x)
        zero = [is_zero(x) for x in given]
        return self._made(combine, given, any(zero) if sign == "&" else all(zero))

    def _made(self, function: Callable[..., Any], given: Sequence[Operand], sparse: bool) -> Self:
        tensors = [detached(x) for x in given if isinstance(x, Stored)]
        if sparse and len(tensors) == 2 and all(map(is_sparse, tensors)) and tensors[0].shape == tensors[1].shape:
            a, b = tensors
            if not same_structure(a.structure, b.structure):  # a kernel walks them together
                letters = tuple(LETTERS[: self.ndim])
                compared = Operation(COMPILED[function], Access("A", letters), Access("B", letters))
                return self._run(letters, Call(TRUTH, compared), A=a, B=b).to(dtype="bool")
        found = elementwise(function, *given, sparse=sparse)
        return type(self)(found.structure, to_dtype(found.values, "bool"))


def detached(x: Stored) -> Stored:
    """A tensor whose values have no history."""
    return Stored(x.structure, x.values.detach()) if is_tensor(x.values) else x


def _check_truths(sign: str, x: Operand) -> None:
    found = type(x).__name__ if not isinstance(x, (Stored, np.generic)) else dtype_name(x)
    if found != "bool":
        raise TypeError(f"{sign} is of truth values, not of {found}; compare first, as in A != 0")
