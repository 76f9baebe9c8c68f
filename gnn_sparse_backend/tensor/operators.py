"""Python's operators on tensors, in the manner of the array API. Each is a statement of index notation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .expressions.kernel import kernel_of
from .expressions.notation import Access, Call, Expression, Number, Operation, Statement
from .product_indices import Indices, Shape, broadcast, matmul_indices
from .running import run
from .semirings import PLUS_TIMES, Semiring
from .storage.making import make
from .storage.stored import Stored, of_dense
from .storage.values import FLOATS, dtype_beside, is_tensor, number

if TYPE_CHECKING:
    from typing_extensions import Self

LETTERS = "ijklmnopqrstuvwxyz"


class Arithmetic(Stored):
    """A tensor that can be computed with."""

    __array_ufunc__ = None  # NumPy leaves operators to this class

    def _run(
        self, result: tuple[str, ...], expression: Expression, semiring: Semiring = PLUS_TIMES, **operands: Stored
    ) -> Self:
        statement = Statement(Access("R", result), expression, semiring=semiring)
        found = run(*kernel_of(replace(statement, text=str(statement)), operands, None))
        return type(self)(found.structure, found.values)

    def _together(self, sign: str, a: Any, b: Any) -> Self:
        """`a sign b`, element by element, with NumPy's broadcasting."""
        first, second = _operand(a, self), _operand(b, self)
        if first is None or second is None:
            return NotImplemented  # type: ignore[no-any-return]
        if sign == "/" and first.dtype not in FLOATS and second.dtype not in FLOATS:
            first = first.to(dtype="float64")
        own = broadcast(f"shapes {first.shape} and {second.shape}", first.shape, second.shape)
        one, other = map(_repeated, (first, second), own)
        expression = Operation(sign, Access("A", one[1]), Access("B", other[1]))
        return self._run(tuple(LETTERS[: max(first.ndim, second.ndim)]), expression, A=one[0], B=other[0])

    def __mul__(self, other: Any) -> Self:
        return self._together("*", self, other)

    def __rmul__(self, other: Any) -> Self:
        return self._together("*", other, self)

    def __add__(self, other: Any) -> Self:
        return self._together("+", self, other)

    def __radd__(self, other: Any) -> Self:
        return self._together("+", other, self)

    def __sub__(self, other: Any) -> Self:
        return self._together("-", self, other)

    def __rsub__(self, other: Any) -> Self:
        return self._together("-", other, self)

    def __truediv__(self, other: Any) -> Self:
        return self._together("/", self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._together("/", other, self)

    def __bool__(self) -> bool:
        return bool(self._alone("bool"))

    def __int__(self) -> int:
        return int(self._alone("int"))

    def __float__(self) -> float:
        return float(self._alone("float"))

    def _alone(self, wanted: str) -> Any:
        """The number of an array that has one."""
        if self.ndim:
            raise ValueError(f"{wanted}() is of an array without modes, not of the shape {self.shape}; take A.sum()")
        return self.to_dense().item()

    def __neg__(self) -> Self:
        letters = tuple(LETTERS[: self.ndim])
        return self._run(letters, Operation("*", Number(-1), Access("A", letters)), A=self)

    def __abs__(self) -> Self:
        letters = tuple(LETTERS[: self.ndim])
        return self._run(letters, Call("abs", Access("A", letters)), A=self)

    def __matmul__(self, other: Any) -> Self:
        return self.multiplied(matmul_indices, self, other)

    def __rmatmul__(self, other: Any) -> Self:
        return self.multiplied(matmul_indices, other, self)

    def multiplied(self, indices: Callable[[Shape, Shape], Indices], a: Any, b: Any) -> Self:
        """The product of a and b, one of which is this array, whose indices a function says for their shapes."""
        first, second = _operand(a, self), _operand(b, self)
        if first is None or second is None:
            return NotImplemented  # type: ignore[no-any-return]
        one, other, result = indices(first.shape, second.shape)
        return self._run(result, Operation("*", Access("A", one), Access("B", other)), A=first, B=second)


def _operand(x: Any, like: Stored) -> Stored | None:
    """What stands beside an array, or None for what is no tensor."""
    if isinstance(x, Stored):
        return x
    if isinstance(x, (int, float)) and not isinstance(x, bool):
        return make(number(x, dtype_beside(x, like.dtype)))
    if is_tensor(x) or hasattr(x, "__array__") or isinstance(x, (list, tuple)):
        return make(list(x) if isinstance(x, tuple) else x)
    return make(x) if hasattr(x, "tocoo") else None


def _repeated(x: Stored, modes: list[tuple[int, bool]]) -> tuple[Stored, tuple[str, ...]]:
    """(x, its indices): without the modes along which it is repeated, or of a sparse one with indices of their own."""
    if not x.format.is_dense:  # a sum over the one coordinate there is
        return x, tuple(LETTERS[n].upper() if alone else LETTERS[n] for n, alone in modes)
    indices = tuple(LETTERS[n] for n, alone in modes if not alone)
    if len(indices) == x.ndim:
        return x, indices
    kept = tuple(extent for extent, (_, alone) in zip(x.shape, modes) if not alone)
    return of_dense(x.to("dense").values.reshape(kept)), indices
