"""What a layer does to node features around its messages, in fewer passes over memory.

Scaling by degree, products with a vector of attention that are then summed, biases, self-terms and residuals are
arithmetic on (nodes, features) tensors, each step of which PyTorch reads and writes whole. Inside ``watched`` such a
step gives a lazy tensor too, whose edges are its own rows; whoever wants its values has all steps computed by one
operator, and its gradients by one for each operand. A single step is left to PyTorch. Features that are only scaled
are gathered as they were, and scaled where they are read (``scaled_at``).

What is written to inside is not read late, and what leaves ``watched`` is an ordinary tensor. A map whose module has
hooks is computed at once: they may free or change its matrix.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Hashable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ...compiler.cache.bounded import kept
from ...ops.message.message_op import message_op
from ...ops.message.shared_maps import SHARED_MAPS
from ...ops.message.sparse_rows import mapped_by_nonzeros
from ...structures.checks import FLOATING
from ..core.counters import ours
from ..core.refusal import Refusal, attempt, left
from ..scopes import Scope, current
from ..scopes.frames import module_with_hooks
from ..scopes.modes import COMPUTING, computing, transformed
from ..scopes.torch_state import frame_callback
from . import arithmetic
from .ends import End, Host, loops
from .gathers import gather
from .handlers import OPERATIONS
from .products import LINEAR, PRODUCTS, Product, product
from .recipes import ALL, EDGE, PLAIN, Pointwise, Recipe, bare_rows, gathered
from .stages import Score
from .tensor import LazyTensor, lazy_tensor, unseen, value

LEAST = 1 << 20
"""Numbers from which a pass over them is long beside what following it costs."""
WIDEST = 1 << 12
"""Features of a row up to which arithmetic is followed: kernels are made for a width, and of a matrix for each row
compiling takes minutes.
"""
MOST_EDGES = 64
"""Edges of a node up to which scaling features once for each edge costs less than a pass over the nodes."""


_PRODUCT = message_op("mul(x0, x1)", (EDGE, ALL))


class Rows(Host):
    """Arithmetic on node features of a framework, in one scope."""

    message, of_edges = "rows", False

    def __init__(self, name: str, scope: Scope):
        self.name, self.scope = name, scope

    def compute(self, recipe: Recipe, reason: str) -> Tensor:
        """Compute a recipe by one operator where there is more than one step."""
        steps = recipe.term.steps if type(recipe) is Pointwise else ()
        if (type(recipe) is Score or len(steps) > 1) and transformed() is None:
            out = _attempt_run(self, recipe)
            if type(out) is not Refusal:
                ours(self.name, self.message)
                return out
            with left(self.name, self.message, out):
                return recipe.reference()
        return recipe.reference()

    def run(self, recipe: Recipe) -> Tensor:
        """Compute a recipe by an operator, and what others it can be computed with."""
        if type(recipe) is Score and (others := self._like(recipe)):
            return _together(recipe, others)
        return recipe.run()[0]

    def _like(self, score: Score) -> list[Score]:
        """Others that are waiting and sum products of the same rows: computed with it, they share a gradient."""
        if not _is_shared(score.message):
            return []
        x, _ = score.operands
        alive = {id(root): root for lazy in self.scope.lazy() for root in [_root(lazy._recipe)]}
        return [
            other
            for other in alive.values()
            if type(other) is Score
            and other is not score
            and other.pending()
            and other.computed is None
            and other.reduced == score.reduced
            and other.operands[0] is x
            and _is_shared(other.message)
            and other.message.dims == score.message.dims
        ]


_attempt_run = attempt(Rows.run)


def _root(recipe: Recipe) -> Recipe:
    """What a recipe is a view of, through all views."""
    while recipe.base is not None:
        recipe = recipe.base[0]
    return recipe


def _is_shared(message: Pointwise) -> bool:
    """Whether a message is a product of rows, as wide as it, and of what all rows share, all of one type."""
    return (
        message.term.message == _PRODUCT.message
        and message.places == (EDGE, ALL)
        and message.dims[0] == message.inner
        and all(x.dtype is message.dtype for x in message.operands)
    )


def _together(score: Score, others: list[Score]) -> Tensor:
    """The first, with the others computed beside it."""
    x, vector = score.message.arguments()
    vectors = [vector, *(other.message.arguments()[1] for other in others)]
    rows = loops(x.shape[0], x.device)
    first, *rest = SHARED_MAPS(rows, (x, *vectors), (_PRODUCT, score.reduced))
    for other, out in zip(others, rest):
        other.computed = out.view(other.shape)
        ours(score.host.name, Rows.message)
    return first.view(score.shape)


class Watching(TorchFunctionMode):
    """What runs in a scope: arithmetic on node features where that is worth it, and writes, before which everything
    that is lazy is computed. Not those of code that PyTorch does not announce.
    """

    def __init__(self, scope: Scope):
        super().__init__()
        self.scope = scope

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if torch.compiler.is_compiling():
            return func(*args, **(kwargs or {}))
        kind = _kind(func)  # most of what a layer calls asks for a shape or a type
        if (kind or kwargs) and not COMPUTING.on:
            found = self.seen(kind, func, args, kwargs or {})
            if found is not None:
                return found
        return func(*args, **kwargs) if kwargs else func(*args)

    def seen(self, kind: str, func: Callable, args: tuple, kwargs: dict) -> LazyTensor | None:
        """The result of a function, lazy; None where PyTorch is to run it."""
        if kind == "writes" or kwargs.get("out") is not None or (kind == "may write" and _in_place(func, args, kwargs)):
            # the mode's own function is in between
            if sys._getframe(2).f_globals.get("__name__", "").partition(".")[0] not in _TRUSTED:
                written = [x for x in tree_leaves((args[:1], kwargs.get("out"))) if type(x) in PLAIN]
                with computing():
                    self.scope.settle("somebody writes to a tensor", written)
        elif self.scope.rows is not None and len(args) > 1 and all(each is None for each in kwargs.values()):
            if kind == "product":
                return mapped(func, *args)
            if kind == "arithmetic" and len(args) == 2:
                op, reflected = OPERATIONS[func]
                return _started(self.scope.rows, op, *(args[::-1] if reflected else args))
        return None


def watched(name: str, given: Any, *, trusted: bool, worth_it: bool, kind: Hashable | None = None) -> Scope:
    """The scope of a layer of framework ``name``, to be entered.

    given: what the layer was called with. trusted: `Scope.trusted`. worth_it: whether features are large enough for
    their arithmetic to be lazy, too.
    """
    worth_it = worth_it and transformed() is None and frame_callback() is None  # a compiled program may be inside
    scope = Scope(trusted, given, None if kind is None else (kind, worth_it))
    if worth_it:
        scope.rows = Rows(name, scope)
    if scope.rows is not None or not trusted:
        scope.mode = Watching(scope)
    return scope


def watching() -> Rows | None:
    """Arithmetic on node features in the scope that this thread is in, if it is worth it there."""
    scope = current()
    return None if scope is None else scope.rows


def of_rows(lazy: LazyTensor) -> bool:
    """Whether a lazy tensor stands at its own rows alone."""
    return not lazy._recipe.of_edges


def scaled_at(lazy: LazyTensor, host: Host, end: End) -> LazyTensor | None:
    """Rows that were mapped, or only scaled, by one number each, at an end of edges; None of others, which are computed
    first."""
    recipe = lazy._recipe
    if not recipe.pending() or recipe.shape[0] != end.size:
        return None

    def step(rows: Tensor) -> Tensor:
        return gather(host, end, value(rows, "it is gathered"))

    if type(recipe) is Product:
        return lazy_tensor(gathered(host, end, unseen(lazy)), step, lazy)
    if type(recipe) is not Pointwise or not recipe.plain:
        return None
    if not _SCALES.issuperset(recipe.term.steps) or end.count > MOST_EDGES * end.size:
        return None
    wide = [prod(dims) > 1 for dims in recipe.dims]
    if sum(wide) != 1 or any(x.requires_grad and not own for x, own in zip(recipe.operands, wide)):
        return None
    places = tuple(end if place is EDGE else place for place in recipe.places)
    shape = torch.Size((end.count, *recipe.shape[1:]))
    moved = Pointwise(host, shape, recipe.dtype, recipe.operands, recipe.term, places, recipe.dims, recipe.inner)
    return lazy_tensor(moved, step, lazy)


_TRUSTED = (__name__.partition(".")[0], "dgl", "torch_geometric")
"""Packages whose code does not write to what messages are made of."""
_SCALES = frozenset(("mul", "div"))
_IN_PLACE = frozenset(f"__i{op}__" for op in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split())
_SHOWN = frozenset(
    "__setitem__ __set__ __array__ __dlpack__ numpy data_ptr storage untyped_storage typed_storage resize".split()
)
"""Functions whose result shares the memory of a tensor where PyTorch sees no writes, and such as write."""


@kept
def _kind(func: Callable) -> str:
    """What is watched of a function of PyTorch; "" of most."""
    if _writes(func):
        return "writes"
    if getattr(func, "__module__", "") == functional.__name__ and _place_of_inplace(func) is not None:
        return "may write"
    return "product" if func in PRODUCTS else "arithmetic" if func in OPERATIONS else ""


def _writes(func: Callable) -> bool:
    """Whether a function of PyTorch writes to one of its arguments, or lets others write, by its name."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return func.__self__.__name__ == "data"
    name = name.partition(".")[0]  # of an overload of an operator
    return (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE or name in _SHOWN


@kept
def _place_of_inplace(func: Callable) -> int | None:
    """Which parameter of a function of ``torch.nn.functional`` says that it writes to its operand."""
    try:
        names = list(inspect.signature(func).parameters)
    except ValueError:
        return None
    return names.index("inplace") if "inplace" in names else None


def _in_place(func: Callable, args: tuple, kwargs: dict) -> bool:
    at = _place_of_inplace(func)
    return bool(kwargs.get("inplace") or (len(args) > at and args[at]))


def _started(rows: Rows, op: str, first, second) -> LazyTensor | None:
    """A step of arithmetic, lazy; None where it is none on features that are worth it."""
    if _is_worth_it(first):
        found = arithmetic.binary(op, bare_rows(rows, first), second)
    elif _is_worth_it(second):
        found = arithmetic.binary(op, first, bare_rows(rows, second))
    else:
        return None
    return lazy_tensor(found) if isinstance(found, Recipe) else None


def mapped(function: Callable, x, matrix, bias=None) -> Tensor | None:
    """A linear map of features that are worth it, not computed: one of `PRODUCTS`. None of others, and where nobody
    watches. A bias would be summed with it.
    """
    watch = watching()
    if watch is None or COMPUTING.on or not _is_large(x):
        return None
    found = _attempt_by_nonzeros(function, x, matrix, bias)
    if type(found) is Refusal:
        return None
    if found is not None:
        ours(watch.name, "linear")
        return found
    if bias is not None or module_with_hooks(sys._getframe(1)):
        return None
    found = product(watch, function, x, matrix)
    return None if found is None else lazy_tensor(found)


def _by_nonzeros(function: Callable, x: Tensor, matrix, bias) -> Tensor | None:
    """A linear map of features that are known to be mostly zeros, computed; None of others."""
    if type(matrix) not in PLAIN or matrix.dim() != 2 or not (bias is None or type(bias) in PLAIN):
        return None
    with computing():
        return mapped_by_nonzeros(x, matrix if function is LINEAR else matrix.t(), bias)


_attempt_by_nonzeros = attempt(_by_nonzeros)


def _is_worth_it(x) -> bool:
    return _is_large(x) and not (x.is_leaf and x.requires_grad)  # an optimiser may write to it


def _is_large(x) -> bool:
    return (
        type(x) in PLAIN
        and x.dim() > 1
        and LEAST <= x.numel() <= x.shape[0] * WIDEST
        and x.is_cpu
        and x.dtype in FLOATING
        and x.is_contiguous()
        and transformed() is None
    )
