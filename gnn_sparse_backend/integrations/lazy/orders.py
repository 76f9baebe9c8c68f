"""Linear maps of what is lazy: the order of product and sum, and of product and scaling, that costs less.

Inside ``watched`` a layer's sum of neighbours is lazy where its message is the features of the other end, alone or
weighted. If the layer multiplies it by a matrix first, the two products go in the order that costs less
(`ops.message.linear_order`); whatever else it does computes the sum. Rows that were scaled are mapped first where the
map leaves fewer features to scale.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, is_autocast_enabled
from torch.nn import functional

from ...ops.message.linear_order import maps_first
from ..scopes.modes import computing
from .ends import End
from .handlers import keep
from .history import joined
from .products import LINEAR, known_size, needed_by
from .recipes import PLAIN, Pointwise, Recipe
from .reductions import total
from .rows import mapped as product_of
from .rows import watching
from .tensor import LazyTensor, lazy_tensor, unseen


class Reduced(Recipe):
    """A message reduced over the edges of each row.

    message: the features of one end, alone or weighted by the edges. framework: ``(values) -> tensor``, the framework's
    own reduction.
    """

    __slots__ = ("framework", "message", "reduce", "rows")
    of_edges = False

    def __init__(self, message: Pointwise, rows: End, reduce: str, framework: Callable[[Tensor], Tensor]):
        shape = torch.Size((rows.size, *message.shape[1:]))
        super().__init__(message.host, shape, message.dtype, message.operands)
        self.message, self.rows, self.reduce, self.framework = message, rows, reduce, framework

    def ends(self):
        return (*self.message.ends(), self.rows)

    def on(self, operands):
        return Reduced(self.message.on(operands), self.rows, self.reduce, self.framework)

    def run(self):
        return total(self.message, self.rows, self.reduce)

    def reference(self):
        return self.framework(self.message.reference())

    def meant(self, rows: End, framework: Callable[[Tensor], Tensor]) -> LazyTensor | None:
        """The mean over edges into ``rows`` in the place of this sum; None of anything else."""
        if self.reduce != "sum" or rows.key != self.rows.key or not self.pending():
            return None
        return lazy_tensor(Reduced(self.message, self.rows, "mean", framework))

    def mapped_by(self, matrix: Tensor, bias: Tensor | None) -> Tensor | None:
        """``linear`` of it, mapped before it is reduced; None where that does not pay, or cannot be."""
        message = self.message
        at = next(number for number, dims in enumerate(message.dims) if dims == message.inner)
        x, end = message.operands[at], message.places[at]
        sizes = [known_size(size) for size in (self.rows.size, end.size, end.count)]
        needed = needed_by(x, matrix, *message.operands[:at], *message.operands[at + 1 :])
        if None in sizes or not maps_first(*sizes, *matrix.shape[::-1], x.dtype.itemsize, needed=needed):
            return None
        with computing():
            mapped = functional.linear(x, matrix)
        operands, dims = list(message.operands), list(message.dims)
        operands[at], dims[at] = mapped, tuple(mapped.shape[1:])
        # under autocast the map gives another type, and its result is of that
        narrow = message.viewed(torch.Size((end.count, *dims[at])), tuple(dims)).promoted(mapped.dtype)
        reduced = Reduced(narrow.on(tuple(operands)), self.rows, self.reduce, self.framework)
        out = reduced.value("its reduction")
        return out if bias is None else torch.add(out, bias.to(out.dtype))


def deferred(lazy: LazyTensor, rows: End, reduce: str, framework: Callable[[Tensor], Tensor]) -> LazyTensor | None:
    """The reduction of a lazy message, lazy itself; None where nothing is gained by waiting, or nobody watches."""
    return None if watching() is None else waiting(lazy, rows, reduce, framework)


def waiting(lazy: LazyTensor, rows: End, reduce: str, framework: Callable[[Tensor], Tensor]) -> LazyTensor | None:
    """``deferred``, whoever watches."""
    message = lazy._recipe
    if reduce not in ("sum", "mean") or type(message) is not Pointwise:
        return None
    if rows.count != message.shape[0] or not message.pending() or len(message.inner) != 1 or not message.plain:
        return None
    wide = [place for dims, place in zip(message.dims, message.places) if dims == message.inner]
    narrow = all(dims in ((), (1,), message.inner) for dims in message.dims)
    if len(wide) != 1 or message.inner == (1,) or type(wide[0]) is str or wide[0].key == rows.key or not narrow:
        return None
    if not set(message.term.steps) <= {"mul"} or message.at(rows) is None:
        return None
    return lazy_tensor(Reduced(message, rows, reduce, framework), framework, lazy)


def _mapped_first(lazy: LazyTensor, weight: Tensor, bias: Tensor | None):
    """A linear map of rows that were only multiplied by a number each, scaled behind it if that has fewer features."""
    recipe = lazy._recipe
    wide = [number for number, dims in enumerate(recipe.dims) if dims == recipe.inner]
    if recipe.of_edges or not recipe.pending() or not recipe.plain or len(recipe.inner) != 1 or len(wide) != 1:
        return NotImplemented
    # as many products as there are operands but one: it has each of them once
    once = recipe.term.steps == ("mul",) * (len(recipe.operands) - 1)
    if not once or any(dims not in ((), (1,), recipe.inner) for dims in recipe.dims):
        return NotImplemented
    (at,) = wide
    x = recipe.operands[at]
    if type(weight) not in PLAIN or weight.dim() != 2 or not weight.shape[0] < weight.shape[1] == x.shape[1]:
        return NotImplemented
    if not x.dtype is weight.dtype is recipe.dtype or (bias is not None and type(bias) not in PLAIN):
        return NotImplemented
    mapped = product_of(LINEAR, x, weight)
    mapped = functional.linear(x, weight) if mapped is None else unseen(mapped)
    operands, dims = list(recipe.operands), list(recipe.dims)
    operands[at], dims[at] = mapped, tuple(mapped.shape[1:])
    scaled = recipe.viewed(mapped.shape, tuple(dims)).on(tuple(operands))
    # under autocast the map gives another type, to which its scaled rows are rounded
    if type(mapped) is LazyTensor or mapped.dtype is recipe.dtype:
        out = lazy_tensor(scaled.promoted(mapped.dtype), functional.linear, lazy, weight)
    else:
        out = joined(scaled.reference().to(mapped.dtype), functional.linear, lazy, weight)
    return out if bias is None else torch.add(out, bias.to(out.dtype))


def _linear(lazy, weight, bias=None):
    recipe = lazy._recipe if type(lazy) is LazyTensor else None
    if type(recipe) is Pointwise:
        return _mapped_first(lazy, weight, bias)
    if type(recipe) is not Reduced or not recipe.pending() or type(weight) not in PLAIN:
        return NotImplemented
    if weight.dim() != 2 or weight.shape[1:] != recipe.shape[1:]:
        return NotImplemented
    if weight.dtype is not recipe.dtype and not is_autocast_enabled("cpu"):  # which casts both
        return NotImplemented
    if bias is not None and (type(bias) not in PLAIN or bias.shape != weight.shape[:1]):
        return NotImplemented
    found = recipe.mapped_by(weight, bias)
    return NotImplemented if found is None else joined(found, functional.linear, lazy, weight, bias)


def _matmul(lazy, other, out=None):
    if type(other) not in PLAIN or other.dim() != 2 or out is not None:
        return NotImplemented
    return _linear(lazy, other.t())


keep(LINEAR, _linear, "weight", "bias")
for _function in (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__):
    keep(_function, _matmul, "out")
