"""What a layer does to node features around its messages, in fewer passes over memory.

Scaling by degree, products with a vector of attention that are then summed, biases, self-terms and residuals are
arithmetic on (nodes, features) tensors, each step of which PyTorch reads and writes whole. Inside ``watched`` such a
step gives a lazy tensor too, whose edges are its own rows; whoever wants its values has all steps computed by one
operator, and its gradients by one for each operand. A single step is left to PyTorch. Features that are only scaled
are gathered as they were, and scaled where they are read (``scaled_at``).

What is written to inside is not read late, and what leaves ``watched`` is an ordinary tensor, but for a variable of a
layer of DGL that has become part of something else and that somebody keeps: it is computed when it is looked at, and
before the next step of an optimiser, which may change the matrix that it is mapped by.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...compiler.cache.bounded import kept
from ...ops.message.message_op import message_op
from ...ops.message.shared_maps import SHARED_MAPS
from ...structures.checks import FLOATING
from ..core.counters import ours
from . import arithmetic
from .ends import End, Host, loops
from .handlers import OPERATIONS
from .modes import COMPUTING, restored, transformed
from .products import PRODUCTS, Product, product
from .recipes import ALL, EDGE, PLAIN, Pointwise, Recipe, bare_rows, gathered
from .stages import Score
from .tensor import LazyTensor, lazy_tensor, value
from .torch_state import frame_callback

LEAST = 1 << 20
"""Numbers from which a pass over them is long beside what following it costs."""
MOST_EDGES = 64
"""Edges of a node up to which scaling features once for each edge costs less than a pass over the nodes."""


_PRODUCT = message_op("mul(x0, x1)", (EDGE, ALL))


class Rows(Host):
    """Arithmetic on node features of a framework, in one scope. alive: the lazy tensors of it that still are."""

    message, of_edges = "rows", False

    def __init__(self, name: str):
        self.name = name
        self.alive: list[weakref.ref[LazyTensor]] = []

    def compute(self, recipe: Recipe, reason: str) -> Tensor:
        """By one operator where there is more than one step."""
        steps = recipe.term.steps if type(recipe) is Pointwise else ()
        if (type(recipe) is Score or len(steps) > 1) and transformed() is None:
            if type(recipe) is Score and (others := self._like(recipe)):
                return _together(recipe, others)
            out, _ = recipe.run()
            ours(self.name, self.message)
            return out
        return recipe.reference()

    def follow(self, lazy):
        """Have a lazy tensor settled with those of this scope."""
        self.alive.append(weakref.ref(lazy))

    def _like(self, score: Score) -> list[Score]:
        """Others that are waiting and sum products of the same rows: computed with it, they share a gradient."""
        if not _is_shared(score.message):
            return []
        x, _ = score.operands
        alive = {
            id(root): root for each in self.alive if (lazy := each()) is not None for root in [_root(lazy._recipe)]
        }
        return [
            other
            for other in alive.values()
            if type(other) is Score
            and other is not score
            and other.pending()
            and other.reduced == score.reduced
            and other.operands[0] is x
            and other.versions[0] == score.versions[0]
            and _is_shared(other.message)
            and other.message.dims == score.message.dims
        ]

    def settle(self, wanted: Callable[[Recipe], bool]) -> None:
        """Make those of the lazy tensors that are ``wanted`` ordinary ones, whoever holds them: the later ones first,
        with which those go that only they held."""
        alive, self.alive = self.alive, []
        while alive:
            lazy = alive.pop()()  # what is swapped must have no weak references
            if type(lazy) is not LazyTensor:
                continue
            if wanted(lazy._recipe):
                with restored(lazy._recipe.mode):  # whoever writes may do so without gradients
                    tensor = value(lazy, "it leaves its local scope")
                    torch.utils.swap_tensors(lazy, tensor.view_as(tensor))
            else:
                self.follow(lazy)


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
    for other in others:
        other.check_unmodified()
    x, vector = score.message.arguments()
    vectors = [vector, *(other.message.arguments()[1] for other in others)]
    rows = loops(x.shape[0], x.device)
    first, *rest = SHARED_MAPS(rows, (x, *vectors), (_PRODUCT, score.reduced))
    for other, out in zip(others, rest):
        other.computed = out.view(other.shape)
        ours(score.host.name, Rows.message)
    ours(score.host.name, Rows.message)
    return first.view(score.shape)


class _Watching(TorchFunctionMode):
    """Arithmetic on node features while a layer runs."""

    def __init__(self, rows: Rows):
        super().__init__()
        self.rows = rows

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kind = _kind(func)  # most of what a layer calls asks for a shape or a type
        if (kind or kwargs) and not COMPUTING.on:
            found = self.seen(kind, func, args, kwargs or {})
            if found is not None:
                return found
        return func(*args, **kwargs) if kwargs else func(*args)

    def seen(self, kind: str, func: Callable, args: tuple, kwargs: dict) -> LazyTensor | None:
        """The result of a function, lazy; None where PyTorch is to run it."""
        if kind == "writes" or kwargs.get("out") is not None:
            self.rows.settle(_any)
        elif len(args) > 1 and all(each is None for each in kwargs.values()):
            if kind == "product":
                return mapped(func, *args)
            if kind == "arithmetic" and len(args) == 2:
                op, reflected = OPERATIONS[func]
                return _started(self.rows, op, *(args[::-1] if reflected else args))
        return None


class _OfThread(threading.local):
    """left: scopes that ended, of which somebody still holds what is lazy."""

    def __init__(self):
        self.watching: _Watching | None = None
        self.left: list[Rows] = []


_now = _OfThread()


def settle_left(*_) -> None:
    """Compute what somebody has kept of scopes that ended: before an optimiser's step changes what it is mapped by."""
    if not torch.compiler.is_compiling():
        left, _now.left = _now.left, []
        for rows in left:
            rows.settle(_any)


@contextmanager
def watched(name: str, within: bool = False) -> Iterator[None]:
    """A layer of framework ``name`` runs inside, on features worth it.

    within: the function that makes the layer's result is still running when this ends, so that what became part of
    something else may be one of its variables, and is left lazy.
    """
    if transformed() is not None or frame_callback() is not None:  # a compiled program may be inside
        yield
        return
    rows, watching = Rows(name), _now.watching
    if watching is None:
        with _Watching(rows) as _now.watching:
            try:
                yield
            finally:
                _now.watching = None
    else:
        outside, watching.rows = watching.rows, rows
        try:
            yield
        finally:
            watching.rows = outside
    rows.settle(_seen if within else _any)
    if rows.alive or _now.left:
        _now.left = [each for each in (*_now.left, rows) if any(lazy() is not None for lazy in each.alive)]


def watching() -> Rows | None:
    """The scope that this thread is in, if any."""
    return None if _now.watching is None else _now.watching.rows


def of_rows(lazy: LazyTensor) -> bool:
    """Whether a lazy tensor stands at its own rows alone."""
    return not lazy._recipe.of_edges


def scaled_at(lazy: LazyTensor, host: Host, end: End) -> LazyTensor | None:
    """Rows that were mapped, or only scaled, by one number each, at an end of edges; None of others, which are computed
    first."""
    recipe = lazy._recipe
    if not recipe.pending() or recipe.shape[0] != end.size:
        return None
    if type(recipe) is Product:
        return lazy_tensor(gathered(host, end, lazy))
    if type(recipe) is not Pointwise or not recipe.plain:
        return None
    if not _SCALES.issuperset(recipe.term.steps) or end.count > MOST_EDGES * end.size:
        return None
    wide = [prod(dims) > 1 for dims in recipe.dims]
    if sum(wide) != 1 or any(x.requires_grad and not own for x, own in zip(recipe.operands, wide)):
        return None
    recipe.used = True
    places = tuple(end if place is EDGE else place for place in recipe.places)
    shape = torch.Size((end.count, *recipe.shape[1:]))
    moved = Pointwise(
        host, shape, recipe.dtype, recipe.operands, recipe.versions, recipe.term, places, recipe.dims, recipe.inner
    )
    return lazy_tensor(moved)


_SCALES = frozenset(("mul", "div"))
_IN_PLACE = frozenset(f"__i{op}__" for op in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split())


@kept
def _kind(func: Callable) -> str:
    """What is watched of a function of PyTorch; "" of most."""
    if _writes(func):
        return "writes"
    return "product" if func in PRODUCTS else "arithmetic" if func in OPERATIONS else ""


def _writes(func: Callable) -> bool:
    """Whether a function of PyTorch writes to one of its arguments, by its name."""
    name = getattr(func, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE or name in ("__setitem__", "__set__")


def _started(rows: Rows, op: str, first, second) -> LazyTensor | None:
    """A step of arithmetic, lazy; None where it is none on features that are worth it."""
    if _is_worth_it(first):
        found = arithmetic.binary(op, bare_rows(rows, first), second)
    elif _is_worth_it(second):
        found = arithmetic.binary(op, first, bare_rows(rows, second))
    else:
        return None
    return lazy_tensor(found) if isinstance(found, Recipe) else None


def mapped(function: Callable, x, matrix, bias=None) -> LazyTensor | None:
    """A linear map of features that are worth it, not computed: one of `PRODUCTS`. None of others, and where nobody
    watches. A bias would be summed with it.
    """
    watch = watching()
    if watch is None or bias is not None or COMPUTING.on or not _is_large(x):
        return None
    found = product(watch, function, x, matrix)
    return None if found is None else lazy_tensor(found)


def _is_worth_it(x) -> bool:
    return _is_large(x) and not (x.is_leaf and x.requires_grad)  # an optimiser may write to it


def _is_large(x) -> bool:
    return (
        type(x) in PLAIN
        and x.numel() >= LEAST
        and x.dim() > 1
        and x.is_cpu
        and x.dtype in FLOATING
        and x.is_contiguous()
        and transformed() is None
    )


def _any(recipe: Recipe) -> bool:
    return True


def _seen(recipe: Recipe) -> bool:
    return not recipe.used or recipe.settled() is not None
