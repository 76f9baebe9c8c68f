"""Functions in LLVM's language, written with Python's operators."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

from ...frozen import dataclass


class Code:
    """The lines of one function in LLVM's language, on numbers or on vectors of `lanes` of them."""

    def __init__(self, width: int, lanes: int) -> None:
        self.width, self.lanes = width, lanes
        self.lines: list[str] = []

    def type(self, kind: str) -> str:
        scalar = self._scalar(kind)
        return scalar if self.lanes == 1 else f"<{self.lanes} x {scalar}>"

    def _scalar(self, kind: str) -> str:
        if kind == "condition":
            return "i1"
        return f"i{self.width}" if kind == "integer" else {32: "float", 64: "double"}[self.width]

    def emit(self, kind: str, text: str) -> Value:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return Value(self, kind, name)

    def constant(self, kind: str, value: float | int) -> Value:
        if kind == "number":  # LLVM writes a float by the bits of the double that it is exactly
            exact = struct.unpack("f", struct.pack("f", value))[0] if self.width == 32 else value
            text = f"0x{struct.unpack('Q', struct.pack('d', exact))[0]:016X}"
        else:
            text = str(value)
        if self.lanes > 1:
            text = f"<{', '.join([f'{self._scalar(kind)} {text}'] * self.lanes)}>"
        return Value(self, kind, text)

    @property
    def parameter(self) -> Value:
        return Value(self, "number", "%x")

    def function(self, name: str, result: Value) -> str:
        """The text of a function of one number, or vector, that LLVM puts in the place of its calls."""
        number = self.type("number")
        head = f"define linkonce_odr hidden {number} @{name}({number} %x) alwaysinline nounwind {{"
        return "\n".join([head, *self.lines, f"  ret {number} {result.name}", "}", ""])


Operator: TypeAlias = Callable[["Value", "Value | float"], "Value"]


def _instruction(name: str, kind: str | None = None) -> Operator:
    """A method that emits an instruction of two operands; kind: of its result, that of the operands by default."""
    return lambda self, other: self._emit(name, other, kind)


def _arithmetic(name: str) -> Operator:
    """A method that emits an arithmetic instruction, which LLVM calls ``f<name>`` for floating-point numbers."""
    return lambda self, other: self._emit(f"f{name}" if self.kind == "number" else name, other)


@dataclass(frozen=True, eq=False)
class Value:
    """One value in `Code`: a number, an integer of its width, or a condition. Operators emit instructions; integers are
    unsigned and wrap around, comparisons with NaN do not hold."""

    code: Code
    kind: str
    name: str

    def _emit(self, operation: str, other: Value | float | int, kind: str | None = None) -> Value:
        if not isinstance(other, Value):
            other = self.code.constant(self.kind, other)
        return self.code.emit(kind or self.kind, f"{operation} {self.code.type(self.kind)} {self.name}, {other.name}")

    def __rsub__(self, other: float) -> Value:
        return self.code.constant(self.kind, other) - self

    __add__, __sub__, __mul__ = _arithmetic("add"), _arithmetic("sub"), _arithmetic("mul")
    __truediv__ = _instruction("fdiv")
    __lshift__, __rshift__ = _instruction("shl"), _instruction("lshr")
    __and__, __or__ = _instruction("and"), _instruction("or")
    __lt__, __gt__ = _instruction("fcmp olt", "condition"), _instruction("fcmp ogt", "condition")
    equals = _instruction("fcmp oeq", "condition")

    def bits(self) -> Value:
        return self._bitcast("integer")

    def of_bits(self) -> Value:
        return self._bitcast("number")

    def _bitcast(self, kind: str) -> Value:
        return self.code.emit(kind, f"bitcast {self.code.type(self.kind)} {self.name} to {self.code.type(kind)}")

    def magnitude(self) -> Value:
        return (self.bits() & ((1 << (self.code.width - 1)) - 1)).of_bits()


def select(condition: Value, then: Value | float, otherwise: Value | float) -> Value:
    code = condition.code
    then, otherwise = (v if isinstance(v, Value) else code.constant("number", v) for v in (then, otherwise))
    number, truth = code.type("number"), code.type("condition")
    return code.emit("number", f"select {truth} {condition.name}, {number} {then.name}, {number} {otherwise.name}")


def polynomial(x: Value, *coefficients: float) -> Value:
    """Horner's rule; the constant coefficient comes first."""
    total = x.code.constant("number", coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total
