"""Values of an edge that its message is made of: sums over features, and what is the same for all features.

A message with sums is taken apart for the shapes that its operands have. Each sum is a value that is computed once for
an edge, and so is whatever else has one number for each head, between them::

    mul(sigmoid(sum(mul(x0, x1))), x2)    V0 = sum over k of x0[k] x1[k]
                                          V1 = sigmoid(V0)
                                          the message: mul(V1, x2[f])

So both of FusedMM's loops over features, that of the product of two rows (SDDMM) and that of the sum of rows (SpMM),
are in one pass over the edges, which reads a row once (Rahman, Sujon and Azad, IPDPS 2021, section III).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Protocol, TypeAlias

from ....compiler.language.builder import BufferHandle, ProgramBuilder
from ....compiler.language.expr import Expr, as_expr
from ....frozen import dataclass
from .message import Message, arg, lower, operands_of
from .operands import Operand, broadcast_features, collapse, feature_index, flat_position

Shape = tuple[int, ...]
Load: TypeAlias = Callable[[int, Expr], Expr]
"""From an operand and the place of a feature in it, to its value there."""
_LEAVES = frozenset(("arg", "const"))


@dataclass(frozen=True)
class Inner:
    """What is static in one value.

    message: over the operands of the whole message, then the values before this one. dims: its feature shape.
    reduced: for each feature dimension, whether the value is summed over it. own: for each operand and value before,
    its extents among ``dims``; () of what is not read. outer: the extents of the value among the features of the whole
    message; () where that does not read it.
    """

    message: Message
    dims: Shape
    reduced: tuple[bool, ...]
    own: tuple[Shape, ...]
    outer: Shape

    @property
    def width(self) -> int:
        """Numbers of the value."""
        return prod(e for e, gone in zip(self.dims, self.reduced) if not gone)

    @property
    def terms(self) -> int:
        """Terms of each."""
        return prod(e for e, gone in zip(self.dims, self.reduced) if gone)


@dataclass(frozen=True)
class Value:
    """A value before dimensions are merged. message: as in `Inner`. dims: of it. summed: over the last dimension."""

    message: Message
    dims: Shape
    summed: bool

    @property
    def kept(self) -> Shape:
        """The feature shape of the value."""
        return (*self.dims[:-1], 1) if self.summed else self.dims


class Whole(Protocol):
    """What is static in a whole message: specs of aggregations and of edge maps have it."""

    @property
    def message(self) -> Message: ...
    @property
    def operands(self) -> tuple[Operand, ...]: ...
    @property
    def dims(self) -> Shape: ...
    @property
    def dtype(self) -> str: ...
    @property
    def inner(self) -> tuple[Inner, ...]: ...


def extents(message: Message, shapes: Sequence[Shape]) -> Shape:
    """The feature shape of a message of operands of these shapes. Raises ValueError that quotes what does not fit."""
    if message.op == "arg":
        which: int = message.parts[0]
        return shapes[which]
    parts = [extents(part, shapes) for part in message.parts if isinstance(part, Message)]
    if message.op == "sum":
        if not parts[0]:
            raise ValueError(f"{str(message)!r} has no feature dimension to sum over")
        return (*parts[0][:-1], 1)
    if message.op == "unbroadcast":
        return (*parts[0][:-1], 1) if _narrows(*parts) else parts[0]
    return broadcast_features(parts) if parts else ()


def take_apart(message: Message, shapes: Sequence[Shape]) -> tuple[Message, Shape, tuple[Value, ...]]:
    """(the message over operands and values, its feature shape, the values). A value's number follows those of the
    operands.
    """
    apart = _Apart(shapes)
    found, dims = apart.whole(message)
    return found, dims, tuple(apart.values)


class _Apart:
    """The values found so far, and the shapes of the operands and of these."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.shapes = list(shapes)
        self.values: list[Value] = []
        self.numbers: dict[Value, int] = {}

    def whole(self, message: Message) -> tuple[Message, Shape]:
        """A message that is computed feature by feature, and its shape: what is the same along the last dimension is a
        value.
        """
        found, dims = self.rewritten(message)
        return (self.narrow_held(found) if dims and dims[-1] != 1 else found), dims

    def rewritten(self, message: Message) -> tuple[Message, Shape]:
        if message.op == "arg":
            return message, self.shapes[message.parts[0]]
        if message.op == "const":
            return message, ()
        if message.op == "sum":
            return self.summed(message.parts[0])
        if message.op in ("broadcast", "unbroadcast"):
            of, other = message.parts[0], extents(message.parts[1], self.shapes)
            if message.op == "unbroadcast":
                return self.summed(of) if _narrows(extents(of, self.shapes), other) else self.rewritten(of)
            found, dims = self.rewritten(of)
            return found, broadcast_features([dims, other])
        parts = [self.rewritten(p) if isinstance(p, Message) else (p, ()) for p in message.parts]
        return Message(message.op, tuple(p for p, _ in parts)), broadcast_features([dims for _, dims in parts])

    def summed(self, message: Message) -> tuple[Message, Shape]:
        found, dims = self.whole(message)
        return (found, dims) if dims[-1:] == (1,) else self.held(Value(found, dims, True))

    def held(self, value: Value) -> tuple[Message, Shape]:
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.shapes)
            self.values.append(value)
            self.shapes.append(value.kept)
        return arg(number), value.kept

    def narrow_held(self, message: Message) -> Message:
        if message.op in _LEAVES:
            return message
        dims = extents(message, self.shapes)
        if (not dims or dims[-1] == 1) and operands_of(message):
            return self.held(Value(message, dims, False))[0]
        return Message(message.op, tuple(self.narrow_held(p) if isinstance(p, Message) else p for p in message.parts))


def _narrows(of: Shape, like: Shape) -> bool:
    """Whether features of shape ``of`` are summed over the last dimension to be those of ``like``."""
    return bool(of) and of[-1] != 1 and (not like or like[-1] == 1)


def merged(values: Sequence[Value], shapes: Sequence[Shape], outer: Sequence[Shape]) -> tuple[Inner, ...]:
    """The values with their dimensions merged. shapes: of operands and values. outer: `Inner.outer` of each value."""
    found = []
    for number, value in enumerate(values):
        reads = operands_of(value.message)
        dims = value.dims or (1,)
        padded = [(1,) * (len(dims) - len(shapes[which])) + tuple(shapes[which]) for which in reads]
        together, kept, *own = collapse((dims, value.kept or (1,), *padded))
        of = dict(zip(reads, own))
        before = len(shapes) - len(values) + number
        found.append(
            Inner(
                value.message,
                together,
                tuple(k == 1 and e != 1 for e, k in zip(together, kept)),
                tuple(of.get(which, ()) for which in range(before)),
                outer[number],
            )
        )
    return tuple(found)


def inner_name(number: int) -> str:
    """What the sum of a value is called in a program."""
    return f"inner_{number}"


def heads_name(number: int) -> str:
    """What the axis of a value's numbers is called in a program."""
    return f"V{number}_heads"


def write_inner(p: ProgramBuilder, spec: Whole, load: Load, accumulator: str) -> list[BufferHandle]:
    """Write the iterations that compute the values of an edge, into local buffers, which are returned."""
    values: list[BufferHandle] = []
    operands = len(spec.operands)
    for number, one in enumerate(spec.inner):
        name = inner_name(number)
        Heads = p.dense_fixed(heads_name(number), one.width)
        V = p.local(f"V{number}", (Heads,), accumulator)

        def term(h: Expr, t: Expr, one: Inner = one) -> Expr:
            flat, given = flat_position(one.dims, one.reduced, h, t), []
            for which, own in enumerate(one.own):
                if not own:
                    given.append(as_expr(0))  # not read
                    continue
                feature = feature_index(flat, one.dims, own)
                given.append(load(which, feature) if which < operands else values[which - operands][feature])
            return lower(one.message, given, spec.dtype, accumulator)

        with p.iterate(f"{name}_heads", (Heads,), "S", (f"{name}_h",)) as (h,):
            if one.terms == 1:
                V[h] = term(h, as_expr(0))
            else:
                Terms = p.dense_fixed(f"V{number}_terms", one.terms)
                Sum = p.local(f"V{number}_sum", (), accumulator)
                with p.iterate(name, (Terms,), "R", (f"{name}_t",)) as (t,):
                    with p.init():
                        Sum[()] = 0.0
                    Sum[()] = Sum[()] + term(h, t)
                V[h] = Sum[()]
        values.append(V)
    return values


def message_at(spec: Whole, load: Load, values: Sequence[BufferHandle], flat: Expr, accumulator: str) -> Expr:
    """The whole message at position ``flat`` of its features. values: those of the edge, which `write_inner` wrote."""
    read = operands_of(spec.message)
    given = [
        load(which, feature_index(flat, spec.dims, operand.dims)) if which in read else as_expr(0)
        for which, operand in enumerate(spec.operands)
    ]
    for one, V in zip(spec.inner, values):
        given.append(V[feature_index(flat, spec.dims, one.outer)] if one.outer else as_expr(0))
    return lower(spec.message, given, spec.dtype, accumulator)
