"""What a step of a layer is, learnt from its lazy tensors: a short list of operators, to be called as they are.

A layer that is called again with arguments of the kind asks for the same operators. Once they are known, nothing has to
be lazy: the arguments go to the operators, one after the other. ``learn`` has them from the recipe that a step came to;
what takes part in a recipe and comes from nowhere that is known (a module's result, a mask) makes it nothing to learn.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ...deferred import later
from ...ops.message.flat import FLOATS, Flat, FlatAggregate, FlatMap
from ...ops.message.programs.operands import broadcast_features
from ...structures.csr import EdgeList
from .ends import End
from .recipes import ALL, EDGE, PLAIN, SCALAR, Pointwise, Recipe
from .stages import Score, Softmax, Weighted
from .terms import BARE

if TYPE_CHECKING:
    from ...ops.attention import flat
else:
    flat = later(__name__, "...ops.attention.flat")

Source = Callable[[Tensor], Any]
"""(operand) -> where it comes from, to be handed to who gives the operands later, and what is there; None if nobody
knows.
"""


class Operand(NamedTuple):
    """An operand of a step. source: as `Source` gave it; or a ``constant``; or the result of a ``step`` before.

    dims: the features in which it is read, None where they are its own. whole: it has no rows.
    """

    source: Any
    constant: Tensor | None
    step: int | None
    dims: tuple[int, ...] | None
    whole: bool = False


class Step(NamedTuple):
    """An operator. features: of the result."""

    flat: Flat
    operands: tuple[Operand, ...]
    features: tuple[int, ...]


class Learnt(NamedTuple):
    """A step of a layer. counted: what it is counted as. work: features of an edge, at most. recipes: of each step, by
    identity, while it is learnt.
    """

    steps: tuple[Step, ...]
    counted: str
    work: int
    recipes: dict[int, int]

    def step_of(self, recipe: Recipe) -> int | None:
        """The step whose result the tensor of a recipe is."""
        return self.recipes.get(_identity(recipe))

    def __call__(self, edges: EdgeList, given: Callable[[Any], Tensor], lasting) -> list[Tensor]:
        """The results of all steps. Raises OutOfRange.

        given: what stands at a source. lasting: a copy of what a gradient reads again and a user may write to.
        """
        results: list[Tensor] = []
        for step in self.steps:
            operands = [_operand(each, given, results) for each in step.operands]
            if torch.is_grad_enabled():
                needed = tuple([x.requires_grad for x in operands])
                if True in needed:
                    for at in step.flat.read_again(needed):
                        if step.operands[at].source is not None:
                            operands[at] = lasting(operands[at])
            out = step.flat(edges, operands)
            results.append(out if out.shape[1:] == step.features else out.view(out.shape[0], *step.features))
        return results


def _operand(each: Operand, given: Callable[[Any], Tensor], results: Sequence[Tensor]) -> Tensor:
    source, constant, step, dims, whole = each
    if source is not None:
        x = given(source)
    elif constant is not None:
        return constant
    else:
        x = results[step]
    if dims is None:
        return x
    return x.reshape(dims) if whole else x.reshape(x.shape[0], *dims)


class Reduction(NamedTuple):
    """A reduction that was asked for: of a recipe, into rows, and what stands for its result."""

    recipe: Recipe
    rows: End
    reduce: str
    ties: str
    out: Tensor
    counted: str


class _Seen(threading.local):
    def __init__(self) -> None:
        self.reductions: list[Reduction] | None = None
        self.copies: dict[int, tuple[Tensor, Tensor]] = {}


_seen = _Seen()


@contextlib.contextmanager
def watching_reductions() -> Iterator[list[Reduction]]:
    """The reductions of lazy tensors that are asked for inside, of which none is computed."""
    before = _seen.reductions, _seen.copies
    _seen.reductions, _seen.copies = [], {}
    try:
        yield _seen.reductions
    finally:
        _seen.reductions, _seen.copies = before


def learning() -> bool:
    """Whether it is found out what is asked for, and nothing of it is computed."""
    return _seen.reductions is not None


def noted(recipe: Recipe, rows: End, reduce: str, ties: str | None) -> tuple[Tensor, None] | None:
    """What stands for the reduction of a recipe, and is not counted; None of one that is no operator."""
    if type(recipe) not in (Pointwise, Weighted):
        return None
    name = "attention" if type(recipe) is Weighted else recipe.term.names[reduce]
    out = recipe.operands[0].new_empty((rows.size, *recipe.shape[1:]), dtype=recipe.dtype)
    _seen.reductions.append(Reduction(recipe, rows, reduce, ties, out, recipe.host.counted(name)))
    return out, None


def note_copy(copy: Tensor, x: Tensor) -> None:
    """An operand of a message is a copy of another tensor."""
    if _seen.reductions is not None:
        _seen.copies[id(copy)] = copy, x


class _Unknown(Exception):
    """Not an operator for each step, of operands that are known."""


class _Learning:
    """place: of an end, ``row`` or ``column``, None of another one."""

    def __init__(self, source: Source, place: Callable[[End], str | None]):
        self.source, self.place = source, place
        self.steps: list[Step] = []
        self.made: dict[int, int] = {}
        self.work = 0

    def add(self, flat: Flat, operands: Sequence[Operand], features: Sequence[int], wide) -> int:
        self.steps.append(Step(flat, tuple(operands), tuple(features)))
        self.work = max(self.work, torch.Size(wide).numel())
        return len(self.steps) - 1

    def edges(self, recipe: Recipe) -> int:
        """The step whose result is a recipe's tensor."""
        key = _identity(recipe)
        if key not in self.made:
            self.made[key] = self._edges(recipe)
        return self.made[key]

    def _edges(self, recipe: Recipe) -> int:
        if type(recipe) is Softmax:
            if self.place(recipe.rows) != "row":
                raise _Unknown
            # in the shape of the scores, in which a layer may hand it out, whatever view of it comes next
            shape = recipe.scores.shape
            scores = Operand(None, None, self.edges(recipe.scores), None)
            return self.add(flat.FlatSoftmax.made(_like(shape, recipe.dtype)), [scores], shape[1:], shape[1:])
        if type(recipe) is Score:
            return self._map(recipe.message, recipe.reduced, recipe.shape)
        if type(recipe) is Pointwise:
            return self._map(recipe, (), recipe.shape)
        raise _Unknown

    def _map(self, message: Pointwise, reduced: tuple[bool, ...], shape: torch.Size) -> int:
        places, operands, likes = self._operands(message)
        op = message.term.message_op(places, None, None)
        return self.add(FlatMap.made(op, likes, reduced), operands, shape[1:], message.inner)

    def reduced(self, recipe: Recipe, reduce: str, ties: str | None) -> None:
        """The last step: a reduction into the rows."""
        weights = None
        message = recipe
        if type(recipe) is Weighted:
            weights = self.edges(recipe.weights)
            message = recipe.values
        if type(message) is not Pointwise:
            raise _Unknown
        places, operands, likes = self._operands(message)
        term, inner = message.term, message.inner
        if weights is not None:
            features = tuple(recipe.weights.shape[1:])
            term = term.binary("mul", BARE, (len(operands),), recipe.weights_first)
            places = (*places, EDGE)
            operands.append(Operand(None, None, weights, features))
            likes.append(_like((1, *features), recipe.dtype))
            inner = broadcast_features([inner, features])
        op = term.message_op(places, reduce, ties)
        if not FlatAggregate.serves(op, likes):
            raise _Unknown
        self.add(FlatAggregate.made(op, likes), operands, recipe.shape[1:], inner)

    def _operands(self, message: Pointwise) -> tuple[tuple[str, ...], list[Operand], list[Tensor]]:
        places, operands, likes = [], [], []
        for x, place, dims in zip(message.operands, message.places, message.dims):
            if place is SCALAR:
                places.append(ALL)
                operands.append(Operand(None, x, None, None))
                likes.append(x)
                continue
            if type(x) not in PLAIN or x.dtype is not message.dtype or x.dtype not in FLOATS:
                raise _Unknown
            name = place if type(place) is str else self.place(place)
            found = self.source(_seen.copies.get(id(x), (x, x))[1])
            if name is None or found is None:
                raise _Unknown
            source, own = found
            places.append(name)
            own = tuple(own.shape if place is ALL else own.shape[1:])
            shape = tuple(dims)
            operands.append(Operand(source, None, None, None if own == shape else shape, place is ALL))
            likes.append(x.detach().reshape(shape) if place is ALL else _like((1, *shape), x.dtype))
        return tuple(places), operands, likes


def _identity(recipe: Recipe) -> int:
    """What views of a softmax have in common; else the recipe's own."""
    return id(recipe.scores if type(recipe) is Softmax else recipe)


def _like(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty((1, *shape[1:]), dtype=dtype)


def learn_reduction(found: Reduction, source: Source, place: Callable[[End], str | None]) -> Learnt | None:
    """A reduction as operators; None if it is none."""
    learning = _Learning(source, place)
    try:
        if place(found.rows) != "row":
            raise _Unknown
        learning.reduced(found.recipe, found.reduce, found.ties)
    except _Unknown:
        return None
    return Learnt(tuple(learning.steps), found.counted, learning.work, learning.made)


def learn_edges(recipe: Recipe, source: Source, place: Callable[[End], str | None]) -> Learnt | None:
    """What is lazy at edges, as operators; None if it is none."""
    learning = _Learning(source, place)
    try:
        learning.edges(recipe)
    except _Unknown:
        return None
    counted = recipe.host.counted("softmax" if type(recipe) is Softmax else "edge_map")
    return Learnt(tuple(learning.steps), counted, learning.work, learning.made)
