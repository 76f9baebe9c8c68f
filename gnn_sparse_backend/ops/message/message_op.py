"""Forms: what is static in an aggregation or an edge map before shapes are known, and their derivatives as forms.

A form is made once and kept, so that a call looks its kernel up by shapes and types alone.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from ...compiler.cache.bounded import kept
from ...compiler.language.reduction import REDUCTIONS
from ...frozen import dataclass
from .programs.inner import Shape, take_apart
from .programs.message import (
    Message,
    alike,
    arg,
    chosen,
    commuted,
    has_sums,
    is_exact,
    operands_of,
    parse,
    parse_with,
    renumber,
    same,
    stored,
    vjp,
)

CHOOSING = "last", "first"
SHARING = "even", "even_with_zero", "even_if_positive"
"""The ``ties`` of a `MessageOp` by which equal messages share a gradient."""

_PLACES = "row", "column", "edge", "all", "number"
_SWAPPED = {"row": "column", "column": "row"}
_OF_RESULT = {"scale": "row", "others": "edge", "result": "row"}
"""What the gradient of a `Reduction` may name beside messages and cotangents, and where it stands."""


@dataclass(frozen=True, eq=False)
class MessageOp:
    """A message, the place of each operand (``row``, ``column``, ``edge``, ``all`` or ``number``), and its reduction.

    reduce: the name of a `Reduction`; None for an edge map. The result has the type of operand 0.
    ties: with max and min, who gets the gradient of equal messages: ``last`` or ``first`` in the order of the
        non-zeros, where NaN is never chosen and a row without a choice keeps the neutral element, as DGL has it; or
        ``even``, where they share it, NaN wins and a row without edges is 0; or ``even_with_zero``, the same but that
        nobody gets one more share where the result is 0, as PyTorch's ``scatter_reduce`` has it of what is put into
        zeros, whether they are included or not; or ``even_if_positive``, the same as ``even`` but that each has all of
        a negative gradient, and NaN is equal to NaN, as ``torch.segment_reduce`` has it.

    Forms compare by identity: make them with ``message_op``.
    """

    message: Message
    places: tuple[str, ...]
    reduce: str | None
    ties: str | None

    @functools.cached_property
    def sums(self) -> bool:
        """Whether the message sums over features."""
        return has_sums(self.message)

    @functools.cached_property
    def reads_edges(self) -> bool:
        """Whether the order of edges matters."""
        return "edge" in self.places or "number" in self.places

    @functools.cached_property
    def kind(self) -> str:
        """What the planner tells forms apart by, since it decides what they move: ``"sum:column,edge"``,
        ``"map:column,row"``; ``"sum:column,inner,row"`` of a message with sums over features.
        """
        places = (*self.places, "inner") if self.sums else self.places
        return f"{self.reduce or 'map'}:{','.join(sorted(places))}"

    @functools.cached_property
    def shares(self) -> bool:
        """Whether equal messages share the gradient of a maximum or minimum."""
        return self.ties in SHARING

    @functools.cached_property
    def reads_result(self) -> bool:
        """Whether the backward pass reads the result."""
        return self.shares or (self.reduce is not None and "result" in REDUCTIONS[self.reduce].gradient)

    @functools.cached_property
    def same_everywhere(self) -> bool:
        """Whether every kernel computes the same bits of the message: no product is added, which one may round and
        another not, and nothing is a function that vectors have another way than numbers.
        """
        return is_exact(self.message)

    def saved(self, needed: tuple[bool, ...]) -> frozenset[int]:
        """Operands that the backward pass reads where the operands marked in ``needed`` want gradients."""
        return _saved(self, needed)

    def gradient(self, operand: int) -> Gradient | None:
        """How the cotangent of the result becomes that of ``operand``; None if the message does not depend on it."""
        return _gradient(self, operand)


class MessageText(NamedTuple):
    """What a `MessageOp` is made of, before anybody parses it: what a traced program holds."""

    message: str
    places: tuple[str, ...]
    reduce: str | None = None
    ties: str | None = None


@dataclass(frozen=True)
class Gradient:
    """A gradient as another form.

    form: an edge map for an operand at the edges, else an aggregation; of the transpose where ``transposed``.
    sources: for each of its operands the number of the operand of the original, or what else stands there:
        ``cotangent`` (of the result), ``scale`` (1 / in-degree of each row), ``number`` (nothing), ``chosen`` (numbers
        of the chosen edges), ``result``, ``others`` (of each edge the product of the other messages of its row).
    """

    form: MessageOp
    transposed: bool
    sources: tuple


@kept
def message_op(
    message: Message | str, places: tuple[str, ...], reduce: str | None = None, ties: str | None = None
) -> MessageOp:
    """The one form of these properties."""
    if isinstance(message, str):
        return message_op(parse(message), places, reduce, ties)
    return MessageOp(message, places, reduce, ties)


SUM_OF_COLUMNS = message_op("x0", ("column",), "sum")
WEIGHTED_SUM_OF_COLUMNS = message_op("mul(x1, x0)", ("column", "edge"), "sum")


@kept
def in_order(of: MessageOp) -> tuple[MessageOp, tuple[int, ...]]:
    """Return the edge map with its operands in the order of ``_PLACES``, and the number that each had.

    Frameworks' layers and our own, whose messages differ in the order of a sum or a product alone, so have the same
    kernels.
    """
    order = tuple(sorted(range(len(of.places)), key=lambda i: (_PLACES.index(of.places[i]), i)))
    message = commuted(renumber(of.message, {old: new for new, old in enumerate(order)}))
    return message_op(message, tuple(of.places[i] for i in order), of.reduce, of.ties), order


def as_map(of: MessageOp) -> MessageOp:
    """The edge map that gives the messages of ``of``."""
    return message_op(of.message, of.places)


def as_sum(of: MessageOp) -> MessageOp:
    """The form that adds the messages of ``of``."""
    return message_op(of.message, of.places, "sum", of.ties)


@kept
def _gradient(of: MessageOp, operand: int) -> Gradient | None:
    count = len(of.places)
    sources: list = list(range(count))
    places = list(of.places)

    def extra(source: str, place: str) -> Message:
        sources.append(source)
        places.append(place)
        return arg(len(sources) - 1)

    cotangent = extra("cotangent", "edge" if of.reduce is None else "row")
    if of.shares:
        cotangent = cotangent * _attained(of, _as_stored(of), extra("result", "row"))
    elif of.ties is not None:
        cotangent = chosen(cotangent, extra("number", "number"), extra("chosen", "row"))
    elif of.reduce is not None:
        names = {"cotangent": cotangent, "message": of.message}
        names |= {source: extra(source, place) for source, place in _OF_RESULT.items()}
        cotangent = parse_with(REDUCTIONS[of.reduce].gradient, names)
    message = vjp(of.message, operand, cotangent)
    if message is None:
        return None
    used = operands_of(message)
    # the type of the result is that of operand 0
    used = sorted(used, key=lambda i: (sources[i] != "cotangent", i))
    place = of.places[operand]
    transposed = place == "column"
    where = [places[i] for i in used]
    if transposed:
        where = [_SWAPPED.get(p, p) for p in where]
    derived = message_op(
        renumber(message, {old: new for new, old in enumerate(used)}), tuple(where), None if place == "edge" else "sum"
    )
    return Gradient(derived, transposed, tuple(sources[i] for i in used))


def _attained(of: MessageOp, message: Message, result: Message) -> Message:
    """1 where the result is that of a message, among those that share."""
    return alike(message, result) if of.ties == "even_if_positive" else same(message, result)


def _as_stored(of: MessageOp) -> Message:
    """The message in the type of the result, which is that of operand 0."""
    return of.message if of.message == arg(0) else stored(of.message)


@kept
def _saved(of: MessageOp, needed: tuple[bool, ...]) -> frozenset[int]:
    used: set = set()
    for operand, wanted in enumerate(needed):
        gradient = of.gradient(operand) if wanted else None
        if gradient is not None:
            used.update(gradient.sources)
            if of.shares or "others" in gradient.sources:
                used.update(operands_of(of.message))
    return frozenset(i for i in used if isinstance(i, int))


@kept
def ties_count(of: MessageOp) -> tuple[MessageOp, tuple]:
    """For max and min whose equal messages share: the form that counts those equal to the result, and its sources."""
    used = operands_of(of.message)
    message = renumber(of.message, {old: new for new, old in enumerate(used)})
    counted = _attained(of, message if of.message == arg(0) else stored(message), arg(len(used)))
    return message_op(counted, (*(of.places[i] for i in used), "row"), "sum"), (*used, "result")


class Stage(NamedTuple):
    """One of the operators that a message is computed by.

    form: of it. sources: numbers of what it reads, where operands come first and then the results of the stages before.
    reduced: for each of its feature dimensions whether an edge map sums over it; () for none.
    """

    form: MessageOp
    sources: tuple[int, ...]
    reduced: tuple[bool, ...] = ()


@kept
def in_stages(of: MessageOp, shapes: tuple[Shape, ...]) -> tuple[Stage, ...]:
    """``of``, whose operands have these feature shapes, as an edge map for each value that its message has once for an
    edge, and last the form that reads these. None of them has a sum in its message.
    """
    message, _, values = take_apart(of.message, shapes)
    places = (*of.places, *("edge",) * len(values))

    def stage(message: Message, reduce: str | None, ties: str | None, *reduced: bool) -> Stage:
        used = operands_of(message)
        message = renumber(message, {old: new for new, old in enumerate(used)})
        return Stage(message_op(message, tuple(places[i] for i in used), reduce, ties), tuple(used), reduced)

    made = [
        stage(v.message, None, None, *(False for _ in v.dims[:-1]), *(v.summed for _ in v.dims[-1:])) for v in values
    ]
    return *made, stage(message, of.reduce, of.ties)
