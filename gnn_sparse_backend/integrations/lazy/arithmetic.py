"""Arithmetic on lazy tensors, with PyTorch's rules for shapes and types.

Every function returns a recipe or an ordinary tensor, or ``NotImplemented`` where the operands have to be computed
first.
"""

from __future__ import annotations

import functools
import math
import operator

import torch
from torch import Tensor

from ...ops.message.programs.operands import broadcast_features
from ...ops.message.thin import MANY
from ..scopes import copy_among, note_shared, shares_sums
from . import learnt
from .recipes import ALL, EDGE, PLAIN, SCALAR, Pointwise, Recipe, number
from .stages import Score, Softmax, Weighted
from .terms import BARE

_SMALL = 1 << 16
_SCALARS = (int, float, bool)
_promote = functools.lru_cache(maxsize=None)(torch.promote_types)


def unary(op: str, recipe: Recipe, constants: tuple[float, ...] = ()):
    """A function of each feature."""
    if not isinstance(recipe, Recipe) or not recipe.pending():
        return NotImplemented
    if type(recipe) is Weighted:
        recipe = recipe.pointwise()
    if type(recipe) is Score:
        if op == "neg":
            return _scaled("mul", recipe, -1.0, False) or NotImplemented
        recipe = recipe.pointwise()
    if type(recipe) is not Pointwise:
        return NotImplemented
    return recipe.of(recipe.term.unary(op, constants))


def binary(op: str, first, second):
    """``op`` of two operands, of which one at least is a recipe; the other may be a recipe, a tensor or a number."""
    if not isinstance(first, Recipe):
        return _binary(op, second, first, True) if isinstance(second, Recipe) else NotImplemented
    if not isinstance(second, Recipe):
        return _binary(op, first, second, False)
    return _two(op, first, second)


def summed(recipe: Recipe, dims, keepdim: bool):
    """The sum over feature dimensions ``dims``, an int or several."""
    if not isinstance(recipe, Recipe):
        return NotImplemented
    rank = len(recipe.shape)
    dims = (dims,) if type(dims) is int else dims
    if type(recipe) is not Pointwise or not recipe.plain or not recipe.pending() or not isinstance(dims, (tuple, list)):
        return NotImplemented
    if not dims or any(type(dim) is not int or not -rank <= dim < rank or dim % rank == 0 for dim in dims):
        return NotImplemented
    gone = {dim % rank for dim in dims}
    if len(gone) != len(dims):
        return NotImplemented
    reduced = tuple(at in gone for at in range(1, rank))
    kept = [(1 if at in gone else extent) for at, extent in enumerate(recipe.shape) if keepdim or at not in gone]
    score = Score(recipe, reduced, torch.Size(kept))
    if not recipe.term.sums:
        return score
    return score.pointwise() or NotImplemented


def _two(op: str, first: Recipe, second: Recipe):
    if (
        not (first.pending() and second.pending())
        or len(first.shape) != len(second.shape)
        or first.shape[0] != second.shape[0]
    ):
        return NotImplemented
    if op == "mul" and Softmax in (type(first), type(second)):
        weighted = _weighted(first, second)
        if weighted is not None:
            return weighted
    first, second = _by_copies(first, second), _by_copies(second, first)
    first, second = _with_sum(first, second), _with_sum(second, first)
    if type(first) is not Pointwise or type(second) is not Pointwise:
        # a score or a softmax is a small tensor of its own
        return (
            _binary(op, first, second, False)
            if type(first) is Pointwise
            else _binary(op, second, first, True)
            if type(second) is Pointwise
            else getattr(torch, op)(first, second)
        )
    if not (first.plain and second.plain):
        return NotImplemented
    inner, dtype = _broadcast(first.inner, second.inner), _promote(first.dtype, second.dtype)
    if inner is None or any(one.dtype is not dtype and not _widens(one) for one in (first, second)):
        return NotImplemented
    return _merged(op, first, second, inner, dtype, False)


def _binary(op: str, recipe: Recipe, other, flipped: bool):
    """``op`` of a recipe and a tensor or number; of the other way round where ``flipped``."""
    if not recipe.pending():
        return NotImplemented
    if type(recipe) is Score:
        scaled = _scaled(op, recipe, other, flipped)
        if scaled is not None:
            return scaled
        recipe = recipe.pointwise()
    if type(recipe) is Weighted:
        recipe = recipe.pointwise()
    if type(recipe) is not Pointwise or not recipe.plain:
        return NotImplemented
    operand = _operand(recipe, other)
    if operand is None:
        return NotImplemented
    wider = operand.dtype is not recipe.dtype
    if wider and not _widens(recipe):
        return NotImplemented
    inner = _broadcast(recipe.inner, operand.inner)
    if inner is None:
        return NotImplemented
    if wider and not recipe.of_edges:  # the first operand has the type of the result: the other is read as it is
        return _merged(op, operand, recipe, inner, operand.dtype, not flipped)
    return _merged(op, recipe, operand, inner, operand.dtype, flipped)


def _widens(recipe: Pointwise) -> bool:
    """Whether a message may take on a wider type: what is computed already would have been rounded to its own, and
    where there are many rows for each edge the rows of the edges are fewer.
    """
    return recipe.term is BARE and not any(
        type(end) is not str and end.size > MANY * end.count for end in recipe.places
    )


def _by_copies(recipe: Recipe, other: Recipe) -> Recipe:
    """A message without sums as one of the copies that ``other`` has of what it reads: each row is gathered once."""
    if type(recipe) is not Pointwise or recipe.term.sums:
        return recipe
    operands = tuple([copy_among(x, other.operands) for x in recipe.operands])
    return recipe if all(map(operator.is_, operands, recipe.operands)) else recipe.on(operands)


def _with_sum(recipe: Recipe, other: Recipe) -> Pointwise | Tensor:
    """`_pointwise`, where a message with a sum over features that reads nothing that ``other`` does is computed, too:
    two kernels then gather no more than one, and gradients of the sum go by what there is for each edge. So is one that
    several messages read, where that is known.
    """
    found = recipe.pointwise() if type(recipe) is Score and type(other) is Pointwise else recipe
    if type(found) is not Pointwise or not found.term.sums or found is other:
        return _pointwise(recipe if found is None else found)
    message = other.values if type(other) is Weighted else other
    if type(message) is Pointwise and message.term.sums:
        return found
    if recipe.merged:
        note_shared()
    if type(message) is Pointwise and _share(found, message) and not shares_sums():
        recipe.merged = True
        return found
    return recipe.settle("a score or a softmax in an expression")


def _share(one: Pointwise, other: Pointwise) -> bool:
    """Whether two messages read an operand with features at the same end."""
    return any(
        x is y and math.prod(dims) > 1 and type(here) is not str and _same_place(here, there)
        for x, here, dims in zip(one.operands, one.places, one.dims)
        for y, there in zip(other.operands, other.places)
    )


def _pointwise(recipe: Recipe) -> Pointwise | Tensor:
    """The message that a recipe is, or its tensor where it is a score or a softmax."""
    if type(recipe) is Weighted:
        return recipe.pointwise()
    return recipe if type(recipe) is Pointwise else recipe.settle("a score or a softmax in an expression")


def _operand(recipe: Pointwise, other) -> Pointwise | None:
    """``other`` as a message beside ``recipe``, of the type that the result has; None if it cannot be one."""
    kind, shape, dtype = type(other), recipe.shape, recipe.dtype
    if kind in _SCALARS:
        return _message(recipe, number(other, dtype, recipe.device), SCALAR, (), dtype)
    if kind not in PLAIN or other.device != recipe.device or other.layout is not torch.strided or other.is_complex():
        return None
    given, rank = tuple(other.shape), len(shape)
    if 0 in given[1:]:
        return None
    if not given:
        if other.dtype is not dtype:
            other = other.to(dtype)
        return _message(recipe, _snapshot(other), ALL, (), dtype)
    dtype = dtype if other.dtype is dtype else _promote(dtype, other.dtype)
    if len(given) < rank:
        return _message(recipe, _snapshot(other), ALL, given, dtype)
    if len(given) > rank:
        return None
    if given[0] == shape[0]:
        return _message(recipe, other, EDGE, given[1:], dtype)
    if given[0] == 1:
        return _message(recipe, _snapshot(other), ALL, given[1:], dtype)
    return None


def _message(like: Pointwise, x: Tensor, place: str, dims: tuple[int, ...], dtype) -> Pointwise:
    return Pointwise(like.host, like.shape, dtype, (x,), BARE, (place,), (dims,), dims)


def _snapshot(x: Tensor) -> Tensor:
    """A parameter as it is now: an optimiser writes to it between the forward pass and a later look at the result."""
    if x.is_leaf and x.requires_grad and x.numel() <= _SMALL:
        copy = x.clone()
        learnt.note_copy(copy, x)
        return copy
    return x


def _merged(op: str, first: Pointwise, second: Pointwise, inner: tuple, dtype, flipped: bool) -> Pointwise:
    """``op`` of two messages, an operand that both have taken once."""
    operands, places, dims = list(first.operands), list(first.places), list(first.dims)
    numbers = []
    for x, place, own in zip(second.operands, second.places, second.dims):
        for at, known in enumerate(operands):
            if known is x and dims[at] == own and _same_place(places[at], place):
                break
        else:
            at = len(operands)
            operands.append(x)
            places.append(place)
            dims.append(own)
        numbers.append(at)
    term = first.term.binary(op, second.term, tuple(numbers), flipped)
    shape, host = torch.Size((first.shape[0], *inner)), first.host if first.host.of_edges else second.host
    return Pointwise(host, shape, dtype, tuple(operands), term, tuple(places), tuple(dims), inner)


def _same_place(one, other) -> bool:
    return one is other or (type(one) is not str and type(other) is not str and one.key == other.key)


def _broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    if one == other:
        return one
    try:
        return broadcast_features([one, other])
    except ValueError:
        return None


def _scaled(op: str, score: Score, other, flipped: bool) -> Score | None:
    """A score times a number, which goes below the sum; None if this is something else."""
    message, kind = score.message, type(other)
    if op == "div" and not flipped and kind in _SCALARS and other:
        return _scaled("mul", score, 1.0 / other, False)
    if op != "mul" or (kind in _SCALARS and not abs(other) <= torch.finfo(score.dtype).max):
        return None  # an infinite number times terms of both signs, or 0, is not that times their sum
    if kind in PLAIN:
        if other.numel() != 1 or other.dim() > len(score.shape) or other.dtype is not score.dtype:
            return None
        other = _snapshot(other).reshape(())
    operand = _operand(message, other)
    if operand is None:
        return None
    return Score(_merged("mul", message, operand, message.inner, message.dtype, False), score.reduced, score.shape)


def _weighted(first: Recipe, second: Recipe) -> Weighted | None:
    """The product of a softmax and a message, to become an attention; None if it is none."""
    weights, values, weights_first = (first, second, True) if type(first) is Softmax else (second, first, False)
    if type(values) is not Pointwise or not values.plain or values.term.sums:
        return None
    if values.dtype is not weights.dtype:
        if not values.bare or _promote(values.dtype, weights.dtype) is not weights.dtype:
            return None
        values = values.promoted(weights.dtype)
    inner = _broadcast(values.inner, tuple(weights.shape[1:]))
    if inner is None:
        return None
    return Weighted(weights, values, weights_first, torch.Size((values.shape[0], *inner)))
