"""Expressions of coordinate space: immutable, typed, closed under Python's operators.

Iterator variables and run-time sizes are int64. An index buffer may be int32 or int64; its loads widen to int64,
so that no product of a coordinate and a width can overflow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import numpy as np

from ...frozen import dataclass
from .axes import Axis, Size, StageIError
from .types import FLOATS, INTEGERS

if TYPE_CHECKING:
    from .program import Buffer

ARITHMETIC = ("+", "-", "*", "/", "//", "%", "min", "max")
BITWISE = ("&", "|")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
LOGICAL = ("and", "or")
FUNCTIONS = ("exp", "log", "sqrt", "tanh", "sigmoid", "abs", "sin", "cos")
PREDICATES = ("is_nan",)
# A word of 32 bits holds two neighbouring bfloat16 numbers: each as a float32, and the bits of one, rounded.
HALVES = ("low_half", "high_half")
BITS = ("bfloat16_bits",)
SETS = ("bit", "bit_count", "trailing_zeros")  # `bits`

Operator: TypeAlias = Callable[["Expr", "ExprLike"], "Expr"]


def _operators(op: str) -> tuple[Operator, Operator]:
    """Python's methods for an operation, of an expression and what stands behind it, or before it."""
    return lambda self, other: binary(op, self, other), lambda self, other: binary(op, other, self)


class Expr:
    """Base of all expressions. `a == b` is structural equality; `equal(a, b)` builds a comparison."""

    if TYPE_CHECKING:

        @property
        def dtype(self) -> str: ...

    __add__, __radd__ = _operators("+")
    __sub__, __rsub__ = _operators("-")
    __mul__, __rmul__ = _operators("*")
    __truediv__, __rtruediv__ = _operators("/")
    __floordiv__, __rfloordiv__ = _operators("//")
    __mod__, __rmod__ = _operators("%")
    __lt__, __gt__ = _operators("<")[0], _operators(">")[0]
    __le__, __ge__ = _operators("<=")[0], _operators(">=")[0]

    def __neg__(self) -> Expr:
        return binary("-", Const(0.0 if self.dtype in FLOATS else 0, self.dtype), self)

    def __bool__(self) -> NoReturn:
        raise StageIError(f"the expression {self!r} has no truth value before the program runs; use select(...)")


ExprLike: TypeAlias = Expr | Size | int | float
"""What `as_expr` takes."""


@dataclass(frozen=True)
class Const(Expr):
    value: int | float
    dtype: str


@dataclass(frozen=True)
class Var(Expr):
    """An iterator: the coordinate that a sparse iteration visits along one axis."""

    name: str
    dtype: str = field(default="int64", init=False)


@dataclass(frozen=True)
class SizeOf(Expr):
    """A run-time size used as a value."""

    size: Size
    dtype: str = field(default="int64", init=False)


@dataclass(frozen=True)
class Load(Expr):
    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        kind = self.buffer.dtype
        return "int64" if kind in INTEGERS and kind != "bool" else kind


@dataclass(frozen=True)
class Present(Expr):
    """Whether the element that `load` names is stored."""

    load: Load
    dtype: str = field(default="bool", init=False)


@dataclass(frozen=True)
class Stored(Expr):
    """Whether the last of `axis.chain` stores the last of `indices` under the element that the others name."""

    axis: Axis
    indices: tuple[Expr, ...]
    dtype: str = field(default="bool", init=False)


@dataclass(frozen=True)
class Offset(Expr):
    """Where elements of an axis lie among all of its elements.

    Attributes:
        indices: the coordinates of the axes above it, root first; of "offset_of" also the one of its own.
        part: "begin_of", "end_of" those under the element that the indices name; "offset_of" the element itself.
    """

    axis: Axis
    indices: tuple[Expr, ...]
    part: str
    dtype: str = field(default="int64", init=False)


@dataclass(frozen=True)
class Owner(Expr):
    """The offset of the last element above `axis` whose elements begin at or before `at`."""

    axis: Axis
    at: Expr
    dtype: str = field(default="int64", init=False)


@dataclass(frozen=True)
class Binary(Expr):
    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        return "bool" if self.op in COMPARISONS + LOGICAL else self.a.dtype


_RESULTS = {**dict.fromkeys(PREDICATES, "bool"), **dict.fromkeys(HALVES, "float32"), **dict.fromkeys(BITS, "int64")}


@dataclass(frozen=True)
class Call(Expr):
    function: str
    argument: Expr

    @property
    def dtype(self) -> str:
        return _RESULTS.get(self.function, self.argument.dtype)


@dataclass(frozen=True)
class Select(Expr):
    """`then` where `condition` holds, `otherwise` elsewhere; only the chosen side is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr

    @property
    def dtype(self) -> str:
        return self.then.dtype


@dataclass(frozen=True)
class Cast(Expr):
    dtype: str
    value: Expr


def as_expr(value: ExprLike, like: str = "int64") -> Expr:
    """`value` as an expression; a Python number takes the type `like`."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Size):
        return SizeOf(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise StageIError(f"{value!r} is not an expression; use iterators, sizes, buffer loads and numbers")
    if isinstance(value, float) and like not in FLOATS:
        raise StageIError(
            f"the number {value!r} cannot stand where an {like} is wanted; say its type with number({value!r}, dtype)"
        )
    if value != value:
        raise StageIError("NaN cannot be a constant of a program: it does not even equal itself")
    low, high = _range(like)
    if isinstance(value, int) and not low <= value <= high:
        raise StageIError(f"the number {value} does not fit {like}")
    return Const(float(value) if like in FLOATS else value, like)


def _range(dtype: str) -> tuple[float, float]:
    if dtype == "bool":
        return 0, 1
    if dtype in FLOATS:
        return -sys.float_info.max, sys.float_info.max
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """The operation `op` on two expressions of one type (numbers adapt)."""
    if op not in ARITHMETIC + BITWISE + COMPARISONS + LOGICAL:
        raise StageIError(f"unknown operation {op!r}")
    if isinstance(a, Expr):
        b = as_expr(b, a.dtype)
    else:
        b = as_expr(b)
        a = as_expr(a, b.dtype)
    if a.dtype != b.dtype:
        raise StageIError(f"operands of {op!r} have types {a.dtype} and {b.dtype}; cast one of them")
    if op in LOGICAL and a.dtype != "bool":
        raise StageIError(f"{op!r} wants conditions, not values of type {a.dtype}")
    if a.dtype == "bool" and op not in (*LOGICAL, "==", "!="):
        raise StageIError(f"{op!r} wants numbers, not conditions; use select(condition, 1, 0)")
    if op == "/" and a.dtype not in FLOATS:
        raise StageIError(f"'/' wants floating-point operands, not {a.dtype}; use '//'")
    if op in ("//", "%", *BITWISE) and a.dtype in FLOATS:
        raise StageIError(f"{op!r} wants integer operands, not {a.dtype}")
    return Binary(op, a, b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """a where a < b, otherwise b. Where one of them is NaN, or both are zeros, that is b: see `maximum`."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """a where a > b, otherwise b. So where one of them is NaN, or both are zeros of whatever sign, the result is b.

    This is what x86 computes (`maxps`), and every stage and target agrees on it. (CUDA's own `max` gives the operand
    that is not NaN, Python's gives a.) What a reduction of v into acc makes of NaN:

        maximum(v, acc)                                ignores NaN: the result is never NaN unless acc begins as NaN
        maximum(acc, v)                                forgets: a NaN is the result until the next v replaces it
        select(either(v > acc, is_nan(v)), v, acc)     propagates: once NaN, always NaN, as no comparison with it holds
    """
    return binary("max", a, b)


def equal(a: ExprLike, b: ExprLike) -> Expr:
    """The condition that a equals b; of two NaN it does not hold."""
    return binary("==", a, b)


def differ(a: ExprLike, b: ExprLike) -> Expr:
    """The condition that a differs from b."""
    return binary("!=", a, b)


def both(a: ExprLike, b: ExprLike) -> Expr:
    """The condition that a and b hold; b is not evaluated where a does not."""
    return binary("and", a, b)


def either(a: ExprLike, b: ExprLike) -> Expr:
    """The condition that a or b holds; b is not evaluated where a does."""
    return binary("or", a, b)


def number(value: ExprLike, dtype: str = "int64") -> Expr:
    """A number of the given type, or a run-time size, as an expression."""
    if dtype not in FLOATS + INTEGERS:
        raise StageIError(f"unknown value type {dtype!r}")
    return as_expr(value, dtype)


def check_condition(condition: object, where: str) -> None:
    if not isinstance(condition, Expr):
        raise StageIError(f"{where} wants a condition, not {condition!r}; compare with <, equal(a, b) or differ(a, b)")
    if condition.dtype != "bool":
        raise StageIError(f"{where} wants a condition, not a value of type {condition.dtype}")


def select(condition: Expr, then: ExprLike, otherwise: ExprLike) -> Expr:
    """`then` where the condition holds, `otherwise` elsewhere, both of one type; only the chosen side is evaluated."""
    check_condition(condition, "select")
    if isinstance(then, Expr):
        otherwise = as_expr(otherwise, then.dtype)
    else:
        otherwise = as_expr(otherwise)
        then = as_expr(then, otherwise.dtype)
    if then.dtype != otherwise.dtype:
        raise StageIError(f"the two sides of select have types {then.dtype} and {otherwise.dtype}")
    return Select(condition, then, otherwise)


def cast(dtype: str, value: ExprLike) -> Expr:
    """`value` converted to `dtype`; nothing where it already has it."""
    value = value if isinstance(value, Expr) and dtype in FLOATS + INTEGERS else number(value, dtype)
    return value if value.dtype == dtype else Cast(dtype, value)


def call(function: str, argument: ExprLike) -> Expr:
    """A function of one value, by its name in FUNCTIONS or PREDICATES; of bfloat16 numbers in words "low_half",
    "high_half" and "bfloat16_bits"; of sets "bit", "bit_count", "trailing_zeros"."""
    known = (*FUNCTIONS, *PREDICATES, *HALVES, *BITS, *SETS)
    if function not in known:
        raise StageIError(f"unknown function {function!r}; there are {', '.join(known)}")
    argument = as_expr(argument, "int64" if function in HALVES + SETS else "float32")
    if function in HALVES + SETS:
        if argument.dtype not in INTEGERS:
            wanted = "an integer" if function in SETS else "a word of 32 bits"
            raise StageIError(f"{function} wants {wanted}, not {argument.dtype}")
    elif argument.dtype not in (("float32",) if function in BITS else FLOATS):
        raise StageIError(
            f"{function} wants a {'float32' if function in BITS else 'floating-point'} argument, not {argument.dtype}"
        )
    return Call(function, argument)


def present(load: Expr) -> Expr:
    """The condition that the element that an access names is stored."""
    if not isinstance(load, Load):
        raise StageIError(f"present wants a buffer access, not {load!r}")
    return Present(load)


def stored(axis: Axis, *indices: ExprLike) -> Expr:
    """The condition that an axis stores a coordinate.

    Args:
        axis: a sparse axis.
        indices: the coordinates of the axes above it, root first, then the one of its own.
    """
    if not axis.is_sparse:
        raise StageIError(f"stored wants a sparse axis; {axis.name!r} is {axis.kind} and stores all of its coordinates")
    if len(indices) != len(axis.chain):
        chain = ", ".join(a.name for a in axis.chain)
        raise StageIError(f"stored of axis {axis.name!r} wants a coordinate of each of {chain}, got {len(indices)}")
    return Stored(axis, tuple(as_expr(index) for index in indices))


def begin_of(axis: Axis, *above: ExprLike) -> Expr:
    """The offset, among all elements of an axis, of the first one under the element that the coordinates above name."""
    return _offset(axis, above, "begin_of", len(axis.chain) - 1)


def end_of(axis: Axis, *above: ExprLike) -> Expr:
    """The offset behind the last element of an axis under the element that the coordinates above name."""
    return _offset(axis, above, "end_of", len(axis.chain) - 1)


def offset_of(axis: Axis, *indices: ExprLike) -> Expr:
    """The offset of the element of an axis that the coordinates along its chain name. Ask only of one that is there."""
    return _offset(axis, indices, "offset_of", len(axis.chain))


def _offset(axis: Axis, indices: tuple[ExprLike, ...], part: str, count: int) -> Expr:
    if len(indices) != count:
        raise StageIError(f"{part} of axis {axis.name!r} wants {count} coordinates, got {len(indices)}")
    return Offset(axis, tuple(as_expr(index) for index in indices), part)


def owner_of(axis: Axis, at: ExprLike) -> Expr:
    """The offset of the element above an axis that owns the element at the offset `at`; -1 if that is negative, and
    the last one if it is behind the end."""
    if axis.parent is None:
        raise StageIError(f"owner_of: axis {axis.name!r} is a root and has nothing above it")
    return Owner(axis, as_expr(at))


def exp(a: ExprLike) -> Expr:
    """e to the power a, of a floating-point value."""
    return call("exp", a)


def log(a: ExprLike) -> Expr:
    """The natural logarithm of a floating-point value."""
    return call("log", a)


def sqrt(a: ExprLike) -> Expr:
    """The square root of a floating-point value."""
    return call("sqrt", a)


def tanh(a: ExprLike) -> Expr:
    """The hyperbolic tangent of a floating-point value."""
    return call("tanh", a)


def is_nan(a: ExprLike) -> Expr:
    """The condition that a floating-point value is NaN."""
    return call("is_nan", a)
