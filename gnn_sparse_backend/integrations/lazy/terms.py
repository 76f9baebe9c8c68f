"""Terms: the messages that lazy tensors stand for, each made once.

A layer builds the same message at every call. A ``Term`` therefore remembers what became of it under every operation,
so that following a model costs one look-up per operation: no message is hashed, printed or parsed after its first time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ...compiler.cache.bounded import KernelCache, shared
from ...compiler.language.reduction import REDUCTIONS
from ...ops.message.message_op import MessageOp, message_op
from ...ops.message.programs.message import Message, arg, has_sums, renumber

MOST_MADE = 4096
"""What is remembered of what became of all terms."""

_OPERATORS = "add sub mul div neg exp log sqrt tanh sigmoid relu abs".split()
_TORCH = {op: getattr(torch, op) for op in _OPERATORS} | {
    "leaky_relu": functional.leaky_relu,
    "sum": lambda x: x.sum(-1, keepdim=True),
}
"""The operator of PyTorch that each operator of a message stands for."""


class Term:
    """A message over operands 0, 1, ..., compared by identity.

    message: the expression. names: what each reduction of it is counted as. steps: its operators, in order. sums:
    whether it sums over features.
    """

    __slots__ = ("message", "names", "steps", "sums")

    def __init__(self, message: Message):
        self.message = message
        kind = _KINDS.get(str(message), "message")
        self.names = {reduce: f"{kind}.{reduce}" for reduce in REDUCTIONS}
        self.steps = tuple(_steps(message))
        self.sums = has_sums(message)

    def __repr__(self):
        return f"Term({self.message})"

    def message_op(self, places: tuple[str, ...], reduce: str | None, ties: str | None) -> MessageOp:
        """The operator of this message with its operands at ``places`` (see ``ops.message.message_op``)."""
        key = (self, places, reduce, ties)
        found = _made.get(key)
        return _made.keep(key, message_op(self.message, places, reduce, ties)) if found is None else found

    def unary(self, op: str, constants: tuple[float, ...] = ()) -> Term:
        """``op`` of this message."""
        key = (self, op, constants)
        found = _made.get(key)
        return _made.keep(key, term(Message(op, (self.message, *constants)))) if found is None else found

    def binary(self, op: str, other: Term, numbers: tuple[int, ...], flipped: bool) -> Term:
        """``op`` of this message and ``other``, whose operands get ``numbers``; the reverse where ``flipped``."""
        key = (self, op, other, numbers, flipped)
        found = _made.get(key)
        if found is None:
            parts = (self.message, renumber(other.message, dict(enumerate(numbers))))
            found = _made.keep(key, term(Message(op, parts[::-1] if flipped else parts)))
        return found

    def linear_in(self, number: int) -> bool:
        """Whether this is an operand times, or over, what does not depend on it."""
        return _degree(self.message, number) == 1

    def compute(self, operands: Sequence[Tensor]) -> Tensor:
        """The message of operands that are given per edge, by PyTorch's own operators in the order of the user's."""
        return _compute(self.message, operands)


def term(message: Message) -> Term:
    """The one term of a message."""
    found = _terms.get(message)
    if found is None:
        found = _terms.keep(message, BARE if message == BARE.message else Term(message))
    return found


def _compute(message: Message, operands: Sequence[Tensor]) -> Tensor:
    if message.op == "arg":
        return operands[message.parts[0]]
    return _TORCH[message.op](*(_compute(p, operands) if isinstance(p, Message) else p for p in message.parts))


def _degree(message: Message, number: int) -> int:
    """0 of what does not depend on an operand, 1 of what is proportional to it, 2 of all else."""
    if message.op == "arg":
        return int(message.parts[0] == number)
    degrees = [_degree(part, number) for part in message.parts if isinstance(part, Message)]
    if message.op == "mul":
        return min(sum(degrees), 2)
    if message.op == "neg" or (message.op == "div" and not degrees[1]):
        return degrees[0]
    return 2 if any(degrees) else 0


def _steps(message: Message) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, Message):
            yield from _steps(part)
    if message.op != "arg":
        yield message.op


_KINDS = {"x0": "copy", "mul(x0, x1)": "mul", "mul(x1, x0)": "mul"}
_terms: KernelCache[Message, Term] = shared("terms")
_made: KernelCache[tuple, Any] = shared("what became of terms", MOST_MADE)

BARE = Term(arg(0))
"""Operand 0 alone: of a gather, its features. It is the term of this message however many others come and go."""
