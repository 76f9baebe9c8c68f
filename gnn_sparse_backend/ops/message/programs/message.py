"""What an edge says: a scalar expression over operands of its row, its column and the edge itself, and its derivatives.

A message is applied feature by feature, but for sums over the last feature dimension, which stays with extent 1. Which
operand comes from where, and how it broadcasts, is said beside it (``operands.py``, ``inner.py``); the message is
arithmetic alone, so it can be printed, hashed, parsed back and differentiated::

    message = arg(0) * leaky_relu(arg(1) + arg(2), 0.2)
    str(message)             'mul(x0, leaky_relu(add(x1, x2), 0.2))'
    vjp(message, 0, arg(3))  mul(x3, leaky_relu(add(x1, x2), 0.2))

    parse("dot(x0, x1)")     sum(mul(x0, x1))
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from ....compiler.cache.bounded import kept
from ....compiler.language.expr import Expr, call, cast, either, equal, is_nan, number, select
from ....compiler.language.reduction import REDUCTIONS
from ....frozen import dataclass
from ....spelling import meant


@dataclass(frozen=True)
class Message:
    """``op`` applied to ``parts``, which are messages or, where the operator wants one, numbers."""

    op: str
    parts: tuple[Any, ...]

    def __add__(self, other: Message | float) -> Message:
        return Message("add", (self, _message(other)))

    def __sub__(self, other: Message | float) -> Message:
        return Message("sub", (self, _message(other)))

    def __mul__(self, other: Message | float) -> Message:
        return Message("mul", (self, _message(other)))

    def __truediv__(self, other: Message | float) -> Message:
        return Message("div", (self, _message(other)))

    def __neg__(self) -> Message:
        return Message("neg", (self,))

    def __str__(self) -> str:
        if self.op == "arg":
            return f"x{self.parts[0]}"
        if self.op == "const":
            return repr(self.parts[0])
        return f"{self.op}({', '.join(str(p) if isinstance(p, Message) else repr(p) for p in self.parts)})"


def arg(index: int) -> Message:
    """Operand number ``index``."""
    return Message("arg", (index,))


def const(value: float) -> Message:
    """A number."""
    return Message("const", (float(value),))


def leaky_relu(x: Message, slope: float) -> Message:
    return Message("leaky_relu", (x, float(slope)))


def total(x: Message) -> Message:
    """x summed over its last feature dimension, which then has extent 1."""
    return Message("sum", (x,))


def broadcast(x: Message, like: Message) -> Message:
    """x in the features that both have: what flows back into a sum goes to each of its terms."""
    return Message("broadcast", (x, like))


def unbroadcast(x: Message, like: Message) -> Message:
    """x summed over its last feature dimension where ``like`` has extent 1 there, else x itself: what flows back to an
    operand that all features share.
    """
    return Message("unbroadcast", (x, like))


def chosen(x: Message, edge: Message, other: Message) -> Message:
    """x where the two numbers of edges are equal, 0 elsewhere."""
    return Message("chosen", (x, edge, other))


def stored(x: Message) -> Message:
    """x rounded to the type that results are stored in, as if it had been stored and read back."""
    return Message("stored", (x,))


def same(x: Message, y: Message) -> Message:
    """1 where x equals y, 0 elsewhere; its derivative is zero."""
    return Message("same", (x, y))


def alike(x: Message, y: Message) -> Message:
    """1 where x equals y or is NaN, 0 elsewhere; its derivative is zero."""
    return Message("alike", (x, y))


def _message(value: Message | float) -> Message:
    return value if isinstance(value, Message) else const(value)


@dataclass(frozen=True)
class _Operator:
    """lower: parts (expressions of one type, then numbers) to an expression.

    vjp: the cotangent, then the parts, to a cotangent for each part (None: no derivative).
    arity: messages among the parts. constants: numbers after them.
    """

    lower: Callable[..., Expr]
    vjp: Callable[..., tuple[Message | None, ...]]
    arity: int = 1
    constants: int = 0


def _summed(*parts: Expr) -> Expr:
    raise AssertionError("sums are values of their own when a message is lowered (inner.py)")


def _step(x: Expr, above: Expr | float, otherwise: Expr | float) -> Expr:
    return select(x > 0.0, above, otherwise)


def _like(value: float, x: Expr) -> Expr:
    return number(float(value), x.dtype)


_OPERATORS: dict[str, _Operator] = {
    "add": _Operator(lambda x, y: x + y, lambda g, x, y: (g, g), 2),
    "sub": _Operator(lambda x, y: x - y, lambda g, x, y: (g, -g), 2),
    "mul": _Operator(lambda x, y: x * y, lambda g, x, y: (g * y, g * x), 2),
    "div": _Operator(lambda x, y: x / y, lambda g, x, y: (g / y, -(g * ((x / y) / y))), 2),
    "neg": _Operator(lambda x: -x, lambda g, x: (-g,)),
    "exp": _Operator(lambda x: call("exp", x), lambda g, x: (g * Message("exp", (x,)),)),
    "log": _Operator(lambda x: call("log", x), lambda g, x: (g / x,)),
    "sqrt": _Operator(lambda x: call("sqrt", x), lambda g, x: (g / (Message("sqrt", (x,)) * 2.0),)),
    "tanh": _Operator(
        lambda x: call("tanh", x),
        lambda g, x: (g * (const(1.0) - Message("tanh", (x,)) * Message("tanh", (x,))),),
    ),
    "sigmoid": _Operator(
        lambda x: call("sigmoid", x),
        lambda g, x: (g * (Message("sigmoid", (x,)) * (const(1.0) - Message("sigmoid", (x,)))),),
    ),
    # a threshold passes NaN on, as PyTorch's does
    "relu": _Operator(lambda x: select(x <= 0.0, _like(0.0, x), x), lambda g, x: (Message("relu_grad", (g, x)),)),
    "relu_grad": _Operator(
        lambda g, x: select(x <= 0.0, _like(0.0, g), g),
        lambda c, g, x: (Message("relu_grad", (c, x)), None),
        arity=2,
    ),
    "leaky_relu": _Operator(
        lambda x, slope: _step(x, x, x * slope),
        lambda g, x, slope: (Message("leaky_relu_grad", (g, x, slope)), None),
        constants=1,
    ),
    "leaky_relu_grad": _Operator(
        lambda g, x, slope: _step(x, g, g * slope),
        lambda c, g, x, slope: (Message("leaky_relu_grad", (c, x, slope)), None, None),
        arity=2,
        constants=1,
    ),
    "abs": _Operator(lambda x: call("abs", x), lambda g, x: (g * Message("sign", (x,)),)),
    # 0 of NaN, as PyTorch's
    "sign": _Operator(
        lambda x: select(x > 0.0, _like(1.0, x), select(x < 0.0, _like(-1.0, x), _like(0.0, x))), lambda g, x: (None,)
    ),
    "sum": _Operator(_summed, lambda g, x: (broadcast(total(g), x),)),
    "broadcast": _Operator(_summed, lambda c, g, x: (c, None), 2),
    "unbroadcast": _Operator(_summed, lambda c, g, x: (broadcast(unbroadcast(c, x), g), None), 2),
    "stored": _Operator(lambda x: x, lambda g, x: (g,)),
    "same": _Operator(lambda x, y: select(equal(x, y), _like(1.0, x), _like(0.0, x)), lambda g, x, y: (None, None), 2),
    "alike": _Operator(
        lambda x, y: select(either(equal(x, y), is_nan(x)), _like(1.0, x), _like(0.0, x)),
        lambda g, x, y: (None, None),
        2,
    ),
    # 1 where edge x is the one that was chosen, y: numbers of edges, exact in their own type
    "chosen": _Operator(
        lambda g, x, y: select(equal(x, y), g, _like(0.0, g)),
        lambda c, g, x, y: (Message("chosen", (c, x, y)), None, None),
        arity=3,
    ),
}


def operands_of(message: Message) -> tuple[int, ...]:
    """Numbers of the operands that the message reads, in order."""
    if message.op == "arg":
        return message.parts
    return tuple(sorted({i for p in message.parts if isinstance(p, Message) for i in operands_of(p)}))


def operators_of(message: Message) -> frozenset[str]:
    """The operators in a message."""
    inner = (operators_of(part) for part in message.parts if isinstance(part, Message))
    return frozenset((message.op,)).union(*inner)


SUMMING = frozenset(("sum", "broadcast", "unbroadcast"))
"""Operators whose result depends on which features its parts have."""


@kept
def has_sums(message: Message) -> bool:
    """Whether a message sums over features, or says to what extents something is broadcast."""
    return not SUMMING.isdisjoint(operators_of(message))


_EXACT = frozenset(("arg", "const", "add", "sub", "mul", "div", "neg", "abs", "relu", "leaky_relu", "stored"))
_PRODUCTS = frozenset(("mul", "leaky_relu"))


def is_exact(message: Message) -> bool:
    """Whether the bits of a message are the same however a compiler arranges it. A sum of a product may be contracted
    to one operation, and be rounded once.
    """
    operators = operators_of(message)
    if not operators <= _EXACT:
        return False
    parts = [part for part in message.parts if isinstance(part, Message)]
    if message.op in ("add", "sub") and any(_PRODUCTS & operators_of(part) for part in parts):
        return False
    return all(map(is_exact, parts))


def lower(message: Message, operands: list[Expr], dtype: str, accumulator: str) -> Expr:
    """The message as an expression of coordinate space.

    operands: its loads, in the type ``accumulator`` to compute in. dtype: what results are stored in.
    """
    if message.op == "arg":
        which: int = message.parts[0]
        return operands[which]
    if message.op == "const":
        return number(message.parts[0], accumulator)
    parts = [lower(p, operands, dtype, accumulator) if isinstance(p, Message) else p for p in message.parts]
    if message.op == "stored":
        return cast(accumulator, cast(dtype, parts[0]))
    return _OPERATORS[message.op].lower(*parts)


@kept
def vjp(message: Message, operand: int, cotangent: Message) -> Message | None:
    """The contribution of ``cotangent`` to the gradient of an operand, or None if the message does not depend on it.

    ``cotangent`` has all features of the message. Beside sums, what flows back to an operand is summed where it flows,
    over its last feature dimension: ways back have different extents there.
    """
    return _vjp(message, operand, cotangent, has_sums(message))


def _vjp(message: Message, operand: int, cotangent: Message, sums: bool) -> Message | None:
    if message.op == "arg":
        if message.parts[0] != operand:
            return None
        return unbroadcast(cotangent, message) if sums else cotangent
    if message.op == "const" or operand not in operands_of(message):
        return None
    total = None
    for part, share in zip(message.parts, _OPERATORS[message.op].vjp(cotangent, *message.parts)):
        if share is None or not isinstance(part, Message):
            continue
        found = _vjp(part, operand, share, sums)
        if found is not None:
            total = found if total is None else total + found
    return total


def renumber(message: Message, numbers: dict[int, int]) -> Message:
    """The message with its operands numbered anew."""
    if message.op == "arg":
        return arg(numbers[message.parts[0]])
    return Message(message.op, tuple(renumber(p, numbers) if isinstance(p, Message) else p for p in message.parts))


def commuted(message: Message) -> Message:
    """The message with both parts of sums and products in the order of their texts. Results keep their bits: both
    commute in IEEE 754.
    """
    if message.op == "arg":
        return message
    parts = [commuted(p) if isinstance(p, Message) else p for p in message.parts]
    return Message(message.op, tuple(sorted(parts, key=str) if message.op in ("add", "mul") else parts))


@kept
def parse(text: str) -> Message:
    """The message that prints as ``text``. Raises ValueError that quotes what is not one."""
    return parse_with(text, {})


def parse_with(text: str, names: Mapping[str, Message]) -> Message:
    """Parse a message in whose text ``names`` stand for messages. Raises ValueError that quotes what is not one."""
    try:
        return _parsed(ast.parse(text, mode="eval").body, names)
    except (SyntaxError, ValueError, TypeError) as error:
        raise ValueError(f"{text!r} is not a message: {error}") from None


def _parsed(node: ast.expr, names: Mapping[str, Message]) -> Message:
    match node:
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Name(id=name) if name[0] == "x" and name[1:].isdecimal():
            return arg(int(name[1:]))
        case ast.Call(func=ast.Name(id="dot"), args=parts):
            if len(parts) != 2:
                raise ValueError(f"dot wants 2 arguments, got {len(parts)}")
            return total(_parsed(parts[0], names) * _parsed(parts[1], names))
        case ast.Call(func=ast.Name(id=op), args=parts) if op in _OPERATORS:
            arity, constants = _OPERATORS[op].arity, _OPERATORS[op].constants
            if len(parts) != arity + constants:
                raise ValueError(f"{op} wants {arity + constants} arguments, got {len(parts)}")
            return Message(
                op, (*(_parsed(p, names) for p in parts[:arity]), *(float(ast.literal_eval(p)) for p in parts[arity:]))
            )
        case ast.Call(func=ast.Name(id=op)):
            raise ValueError(f"there is no operator {op!r}{_instead(op)}")
        case ast.BinOp(op=sign) if type(sign) in _SIGNS:
            raise ValueError(f"write {_SIGNS[type(sign)]}(a, b) in the place of {ast.unparse(node)!r}")
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{ast.unparse(node)!r} is neither an operand x0, x1, ..., a number nor an operator of them")
    return const(value)


_SIGNS: dict[type, str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}


def _instead(op: str) -> str:
    """What somebody may have meant by an operator that there is not, in words."""
    if op in REDUCTIONS:
        return f"; {op} is a reduction: give reduce={op!r}"
    known = [name for name in (*_OPERATORS, "dot") if name not in _INTERNAL]
    return f"{meant(op, known)} (the operators are {', '.join(known)})"


_INTERNAL = frozenset(("relu_grad", "leaky_relu_grad", "stored", "same", "alike", "chosen", "broadcast", "unbroadcast"))
"""What gradients are made of."""
