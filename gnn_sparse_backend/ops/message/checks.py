"""What is wrong with a message or with its operands, in words, before any kernel runs."""

from __future__ import annotations

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...runtime.devices import check_kernels
from ...spelling import meant
from ...structures.graph import Graph
from ..core.operands import check_dense, check_device, check_rows, check_written_out, common_type
from .message_op import MessageOp, message_op
from .programs.inner import extents
from .programs.message import operands_of, parse
from .programs.operands import PLACES, broadcast_features


def check_choice(operator: str, name: str, value, choices: tuple[str, ...]) -> None:
    """``value`` is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"{operator}: {name} must be {', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}, got {value!r}"
            + (meant(value, choices) if isinstance(value, str) else "")
        )


@kept
def checked_message(
    operator: str, message: str, places: tuple[str, ...], reduce: str | None, ties: str | None
) -> MessageOp:
    """The one object of a message that a user gave."""
    for place in places:
        if place not in PLACES:
            raise ValueError(f"{operator}: an operand stands at one of {', '.join(PLACES)}, got {place!r}")
    check_message(operator, message, len(places))
    return message_op(message, places, reduce, ties)


def check_message(operator: str, message: str, count: int) -> None:
    """``message`` is one, and reads ``count`` operands, each at least once."""
    try:
        used = operands_of(parse(message))
    except ValueError as error:
        raise ValueError(f"{operator}: {error}") from None
    for number in used:
        if number >= count:
            raise ValueError(f"{operator}: the message {message!r} reads x{number}, but there are {count} operands")
    for number in range(count):
        if number not in used:
            raise ValueError(f"{operator}: the message {message!r} does not read operand x{number}; leave it out")


def check_message_operands(
    operator: str, names: tuple[str, ...], places: tuple[str, ...], operands, message: str = ""
) -> tuple[tuple[Tensor, ...], int]:
    """The operands of a message in one type, and the number of its feature dimensions.

    Each is a dense floating tensor, with a row for whatever stands at its place; features broadcast, where ``message``
    adds or multiplies them if it is given.
    """
    shapes = []
    for name, place, x in zip(names, places, operands):
        check_dense(operator, name, x)
        if place == "all":
            shapes.append(tuple(x.shape))
            continue
        if x.dim() == 0:
            raise ValueError(
                f"{operator}: {name} must have a row per {_ROWS[place][0]} of the graph, got a tensor "
                "without dimensions"
            )
        shapes.append(tuple(x.shape[1:]))
    sums = says_sums(message)
    if sums and torch.compiler.is_compiling():  # the operator has the rest to say
        return common_type(operator, names, *operands), max(map(len, shapes))
    if sums:
        check_message(operator, message, len(shapes))
    try:
        dims = extents(parse(message), shapes) if sums else broadcast_features(shapes)
    except ValueError as error:
        raise ValueError(f"{operator}: of {', '.join(names)} the {error}") from None
    return common_type(operator, names, *operands), len(dims)


def says_sums(text: str) -> bool:
    """Whether a message sums over features, by its text: traced programs cannot parse it."""
    text = text.replace(" ", "")
    return "sum(" in text or "dot(" in text


def check_message_rows(operator: str, graph: Graph, names: tuple[str, ...], places: tuple[str, ...], operands) -> None:
    """Each operand of a message has its rows and is where the graph is, and there are kernels there."""
    for name, place, x in zip(names, places, operands):
        if place == "all":
            check_device(operator, name, x, graph)
        elif place != "number":
            what, count = _ROWS[place]
            check_rows(operator, name, x, count(graph), what, graph)
        if place != "number":
            check_written_out(operator, name, x)
    check_kernels(operator, graph.device)


_ROWS = {
    "row": ("destination", lambda graph: graph.shape[0]),
    "column": ("source", lambda graph: graph.shape[1]),
    "edge": ("edge", lambda graph: graph.num_edges),
}
