"""Which functions of PyTorch keep a lazy tensor lazy."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType, NoneType

import torch
from torch import Tensor
from torch.nn import functional

from . import arithmetic
from .history import joined
from .products import Product
from .recipes import Pointwise, Recipe, bare_rows
from .shapes import reshaped, squeezed, unsqueezed, view_shape
from .tensor import HANDLERS, Handler, LazyTensor, lazy_tensor, materialise, unseen, value

_NUMBERS = (int, float)


def _result(found, function, *arguments):
    """What an operation on recipes has given, as a tensor. function: ``(*arguments) -> tensor``, of PyTorch."""
    if isinstance(found, Recipe):
        return lazy_tensor(found, function, *arguments)
    return joined(found, function, *arguments) if type(found) is Tensor else found


def given(operand):
    """The recipe of a lazy tensor, which becomes a part of another; anything else as it is."""
    if type(operand) is LazyTensor:
        recipe = operand._recipe
        if type(recipe) is Product and recipe.pending():
            return bare_rows(recipe.host, unseen(operand))
        if recipe.settled() is not None:  # it is a view of what was computed
            return value(operand, "")
        return recipe
    return operand


def _binary(op: str):
    function = getattr(torch, op)

    def handle(first, other):
        return _result(arithmetic.binary(op, given(first), given(other)), function, first, other)

    return handle


def _reflected(op: str):
    """``x.__rop__(y)``: y op x."""
    function = getattr(torch, op)

    def step(first, other):
        return function(other if isinstance(other, Tensor) else torch.as_tensor(other), first)

    def handle(first, other):
        found = arithmetic.binary(op, given(other), given(first))
        return _result(found, step, first, other)

    return handle


def _unary(op: str):
    function = getattr(torch, op)

    def handle(lazy, inplace=False):
        return NotImplemented if inplace else _result(arithmetic.unary(op, given(lazy)), function, lazy)

    return handle


def _leaky_relu(lazy, negative_slope=0.01, inplace=False):
    if inplace or type(negative_slope) not in _NUMBERS:
        return NotImplemented
    found = arithmetic.unary("leaky_relu", given(lazy), (float(negative_slope),))
    return _result(found, functional.leaky_relu, lazy, negative_slope)


def _power(lazy, exponent):
    if type(lazy) is not LazyTensor or type(exponent) not in _NUMBERS or exponent != 2:
        return NotImplemented
    return _square(lazy)


def _square(lazy):
    recipe = given(lazy)
    return _result(arithmetic.binary("mul", recipe, recipe), torch.square, lazy)


def _sum(lazy, dim=None, keepdim=False):
    if dim is None or type(keepdim) is not bool:
        return NotImplemented
    return _result(arithmetic.summed(given(lazy), dim, keepdim), torch.sum, lazy, dim, keepdim)


def _dropout(lazy, p=0.5, training=True, inplace=False):
    """Dropout that drops nothing."""
    if inplace or type(p) not in _NUMBERS or not 0 <= p <= 1 or (training and p != 0):
        return NotImplemented
    return lazy


def _viewed(lazy, shape):
    recipe = lazy._recipe
    if shape is None or not recipe.pending() or 0 in shape[1:]:
        return NotImplemented
    viewed = reshaped(recipe, shape) if type(recipe) is Pointwise else recipe.viewed(shape)
    if viewed is None:
        return NotImplemented
    viewed.base = (recipe, lambda tensor: tensor.view(shape))
    return lazy_tensor(viewed, Tensor.view, lazy, shape)


def _view(lazy, *shape):
    return _viewed(lazy, view_shape(lazy._recipe.shape, shape))


def _reshape(lazy, shape):
    return _view(lazy, shape)


def _unsqueeze(lazy, dim):
    return _viewed(lazy, unsqueezed(lazy._recipe.shape, dim))


def _squeeze(lazy, dim=None):
    return _viewed(lazy, squeezed(lazy._recipe.shape, dim))


def _index(lazy, at):
    """``x[:, None]`` and the like: new dimensions alone."""
    if type(lazy) is not LazyTensor or type(at) is not tuple or not at or at[0] is None:
        return NotImplemented
    kinds, whole, shape = [type(one) for one in at], slice(None), lazy._recipe.shape
    if (
        not {slice, NoneType, EllipsisType}.issuperset(kinds)
        or kinds.count(EllipsisType) > 1
        or any(kind is slice and one != whole for kind, one in zip(kinds, at))
    ):
        return NotImplemented
    if EllipsisType not in kinds:
        at, kinds = (*at, ...), [*kinds, EllipsisType]
    place, rest = kinds.index(EllipsisType), len(shape) - kinds.count(slice)
    if rest < 0 or (place == 0 and rest == 0 and at[1:2] == (None,)):
        return NotImplemented
    extents = iter(shape)
    wanted = [1 if one is None else next(extents) for one in (*at[:place], *(whole,) * rest, *at[place + 1 :])]
    return _viewed(lazy, torch.Size(wanted))


def _detach(lazy):
    recipe = lazy._recipe
    if not recipe.pending():
        return NotImplemented
    detached = recipe.on(tuple(x.detach() for x in recipe.operands))
    detached.base = (recipe, Tensor.detach)
    return lazy_tensor(detached)


def _expand_as(tensor, other):
    return NotImplemented if type(tensor) is LazyTensor else tensor.expand(other.shape)


def keep(function, handle, *keywords: str) -> None:
    """Let ``handle`` stand in for a function of PyTorch on lazy tensors.

    It is called with the function's arguments, of which one at least is lazy, and with those named that are among
    ``keywords``; it returns NotImplemented to have the lazy ones computed.
    """
    HANDLERS[function] = Handler(handle, frozenset(keywords))


OPERATIONS: dict[Callable, tuple[str, bool]] = {}
"""Arithmetic of two operands: the operator, and whether the function has them the other way round."""

for _op, _functions in {
    "add": (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__),
    "sub": (torch.sub, torch.subtract, Tensor.sub, Tensor.subtract, Tensor.__sub__),
    "mul": (torch.mul, torch.multiply, Tensor.mul, Tensor.multiply, Tensor.__mul__, Tensor.__rmul__),
    "div": (
        torch.div,
        torch.divide,
        torch.true_divide,
        Tensor.div,
        Tensor.divide,
        Tensor.true_divide,
        Tensor.__truediv__,
    ),
}.items():
    for _function in _functions:
        OPERATIONS[_function] = _op, False
        keep(_function, _binary(_op), "other")
for _function, _op in (
    (Tensor.__rsub__, "sub"),
    (torch.rsub, "sub"),
    (Tensor.__rtruediv__, "div"),
    (Tensor.__rdiv__, "div"),
):
    OPERATIONS[_function] = _op, True
    keep(_function, _reflected(_op), "other")
for _op, _functions in {
    "neg": (torch.neg, torch.negative, Tensor.neg, Tensor.negative, Tensor.__neg__),
    "exp": (torch.exp, Tensor.exp),
    "log": (torch.log, Tensor.log),
    "sqrt": (torch.sqrt, Tensor.sqrt),
    "tanh": (torch.tanh, Tensor.tanh),
    "sigmoid": (torch.sigmoid, Tensor.sigmoid, torch.special.expit),
    "relu": (torch.relu, Tensor.relu, functional.relu),
    "abs": (torch.abs, torch.absolute, Tensor.abs, Tensor.absolute, Tensor.__abs__),
}.items():
    for _function in _functions:
        keep(_function, _unary(_op), *(("inplace",) if _function is functional.relu else ()))
for _functions, _handle, _keywords in (
    ((functional.leaky_relu,), _leaky_relu, ("negative_slope", "inplace")),
    ((torch.pow, Tensor.pow, Tensor.__pow__), _power, ("exponent",)),
    ((torch.square, Tensor.square), _square, ()),
    ((torch.sum, Tensor.sum), _sum, ("dim", "keepdim")),
    ((functional.dropout,), _dropout, ("p", "training", "inplace")),
    ((Tensor.view, Tensor.reshape), _view, ()),
    ((torch.reshape,), _reshape, ("shape",)),
    ((torch.unsqueeze, Tensor.unsqueeze), _unsqueeze, ("dim",)),
    ((torch.squeeze, Tensor.squeeze), _squeeze, ("dim",)),
    ((Tensor.__getitem__,), _index, ()),
    ((Tensor.detach, torch.detach), _detach, ()),
    ((Tensor.expand_as,), _expand_as, ()),
):
    for _function in _functions:
        keep(_function, _handle, *_keywords)


def _method(name: str, handler: Handler):
    """A method of ``LazyTensor`` that spares the detour through ``__torch_function__``."""
    original, reason = getattr(Tensor, name), f"the message is used by {name}"

    def method(self, *args, **kwargs):
        if not kwargs or handler.keywords.issuperset(kwargs):
            found = handler.function(self, *args, **kwargs)
            if found is not NotImplemented:
                return found
        materialise((self, args, kwargs), reason)
        return original(self, *args, **kwargs)

    method.__name__ = name
    return method


_OPERATORS = "add radd sub rsub mul rmul truediv rtruediv neg".split()
for _name in (*(f"__{_op}__" for _op in _OPERATORS), "view", "unsqueeze", "sum"):
    setattr(LazyTensor, _name, _method(_name, HANDLERS[getattr(Tensor, _name)]))
