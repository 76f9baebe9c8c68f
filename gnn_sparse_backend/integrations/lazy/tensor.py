"""``LazyTensor``: a tensor of one row per edge that has not been computed yet."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from ..scopes import scope as scopes
from ..scopes.modes import mode, restored
from .history import at_edge_of, computed_on, hooks_of, place_of, recorded
from .recipes import Recipe

_make_wrapper = Tensor._make_wrapper_subclass


class LazyTensor(Tensor):
    """A (E, ...) tensor that stands for a ``Recipe`` without holding its values.

    Shape, type and device are known; arithmetic and views give lazy tensors again (``HANDLERS``); a reduction or an
    attention runs one kernel (``reductions.py``); anything else first computes it: this object becomes an ordinary
    tensor, whoever holds it. It is a node of the autograd graph, so code that PyTorch does not announce through
    ``__torch_function__`` (custom autograd functions, TorchScript, extensions) gets right values and right gradients
    too.
    """

    _recipe: Recipe

    @staticmethod
    def of(recipe: Recipe) -> LazyTensor:
        """The tensor of a recipe that was made of no lazy one."""
        return lazy_tensor(recipe)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        handler = HANDLERS.get(func)
        if handler is not None:
            if not kwargs or handler.keywords.issuperset(kwargs):
                result = handler.function(*args, **(kwargs or {}))
                if result is not NotImplemented:
                    return result
        elif func in _ALLOCATORS:
            lazy, *sizes = args
            recipe = lazy._recipe
            return getattr(recipe.operands[0], func.__name__)(*sizes, **{"dtype": recipe.dtype, **(kwargs or {})})
        elif func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        materialise((args, kwargs), f"the message is used by {name_of(func)}")
        return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        reason = f"the message is used by {func} inside an autograd function or compiled code"
        args, kwargs = tree_map_only(cls, lambda lazy: lazy._recipe.value_below_autograd(reason), (args, kwargs or {}))
        return func(*args, **kwargs)

    # what layers ask for most, without the detour through __torch_function__

    @property
    def shape(self):
        return self._recipe.shape

    @property
    def dtype(self):
        return self._recipe.dtype

    @property
    def device(self):
        return self._recipe.device

    def size(self, dim=None):
        shape = self._recipe.shape
        return shape if dim is None else shape[dim]

    def dim(self):
        return len(self._recipe.shape)

    def as_subclass(self, cls):  # not announced; and before PyTorch 2.13 not possible for what has no memory
        return value(self, f"the message is used by {name_of(Tensor.as_subclass)}").as_subclass(cls)

    def _settle(self, reason: str) -> Tensor:
        """Become an ordinary tensor, and return it; what stands for one in a program that is compiled is its own."""
        recipe = self._recipe
        whole = recipe
        while whole.base is not None:
            whole, _ = whole.base
            if type(held := whole.tensor()) is LazyTensor:
                held._settle(reason)  # whoever holds it shares memory with this one
                break
        if recipe.mode == mode():
            tensor = _computed(self, reason)
        else:
            with restored(recipe.mode):
                tensor = _computed(self, reason)
        if not isinstance(tensor, Tensor):
            recipe.computed = tensor
            return tensor
        _become(self, tensor)
        if recipe.used and self.requires_grad:
            recipe.hooks = hooks_of(self)
            if recipe.scope is not None:
                recipe.scope.passed.append(recipe.tensor)
        return self


DEFERRED = frozenset((LazyTensor, tuple, list))
"""Types of arguments of a framework's functions that ``materialise`` looks into."""


def lazy_tensor(recipe: Recipe, function: Callable | None = None, *arguments) -> LazyTensor:
    """The tensor of a recipe.

    function: ``(*arguments) -> tensor``, the step that it stands for, where it was made of other lazy tensors.
    """
    if recipe.mode[0]:
        for x in recipe.operands:
            if x.requires_grad:
                scope = scopes.current()
                if scope is not None:
                    scope.consumed |= scope.plain or function is not None
                    if scope.plain:
                        function = None
                return recorded(_wrap, recipe, function, arguments)
    return _wrap(recipe)


def value(lazy: LazyTensor, reason: str) -> Tensor:
    """The lazy tensor, computed. reason: what for, counted where the framework has to compute it."""
    return lazy._settle(reason) if type(lazy) is LazyTensor else lazy


def materialise(tree, reason: str):
    """``tree``, of plain containers, with every lazy tensor in it computed."""
    kind = type(tree)
    if kind is LazyTensor:
        tree._settle(reason)
    elif kind is tuple or kind is list:
        for item in tree:
            materialise(item, reason)
    elif kind is dict:
        for item in tree.values():
            materialise(item, reason)
    elif isinstance(tree, (tuple, list, dict)):  # named tuples and other containers that pytree knows
        for item in tree_leaves(tree):
            value(item, reason)
    return tree


def unseen(lazy: LazyTensor) -> LazyTensor:
    """Another lazy tensor of the same recipe, which nobody holds but a recipe."""
    recipe = lazy._recipe
    recipe.used = True
    with torch._C.DisableTorchFunctionSubclass():
        has_history = lazy.requires_grad
    if has_history:
        again = place_of(lazy)
        again.__class__ = LazyTensor
    else:
        again = _make_wrapper(LazyTensor, recipe.shape, dtype=recipe.dtype, device=recipe.device)
    again._recipe = recipe
    return again


def name_of(func) -> str:
    """What to call a function of PyTorch in a reason."""
    if getattr(func, "__name__", None) in ("__get__", "__set__"):
        return f".{func.__self__.__name__}"
    return getattr(func, "__name__", None) or str(func)


def _wrap(recipe: Recipe) -> LazyTensor:
    lazy = _make_wrapper(LazyTensor, recipe.shape, dtype=recipe.dtype, device=recipe.device)
    lazy._recipe = recipe
    recipe.tensor = weakref.ref(lazy)
    scope = recipe.scope = scopes.current()
    if scope is not None:
        scope.alive.append(recipe.tensor)
    return lazy


def _computed(lazy: LazyTensor, reason: str) -> Tensor:
    """The values of a lazy tensor, in its place in the graph of gradients if it has one."""
    recipe = lazy._recipe
    with torch._C.DisableTorchFunctionSubclass():
        has_history = lazy.requires_grad
    if not has_history:
        tensor = recipe.value(reason)
        return tensor.detach() if isinstance(tensor, Tensor) and tensor.requires_grad else tensor
    if not recipe.mode[0]:  # the result of an autograd function, which gave it a history of its own
        return at_edge_of(lazy, recipe.value_below_autograd(reason))
    if not recipe.used:
        return computed_on(recipe.value(reason), recipe.way)
    seen = recipe.settled()  # what it is a view of may have been computed
    if seen is not None:
        return at_edge_of(lazy, seen.detach())
    tensor = recipe.apart(reason)
    recipe.natural = place_of(tensor)
    return at_edge_of(lazy, tensor.detach())


def _become(lazy: LazyTensor, tensor: Tensor) -> None:
    """Let a lazy tensor be another tensor, and that be lazy, whoever holds them."""
    recipe = lazy._recipe
    recipe.version = None if tensor.is_inference() else tensor._version
    lazy.__class__, tensor.__class__ = tensor.__class__, LazyTensor
    lazy.__dict__, tensor.__dict__ = tensor.__dict__, lazy.__dict__
    torch._C._swap_tensor_impl(lazy, tensor)


class Handler(NamedTuple):
    """What ``LazyTensor`` does instead of computing its values; where ``function`` returns ``NotImplemented`` they are
    computed after all. keywords: the names of arguments that it knows."""

    function: Callable
    keywords: frozenset[str]


HANDLERS: dict[Callable, Handler] = {}
"""Handlers by function of PyTorch."""

_ALLOCATORS = frozenset([Tensor.new_zeros, Tensor.new_ones, Tensor.new_empty, Tensor.new_full])

_METHODS = "size dim numel nelement ndimension is_floating_point is_complex get_device __len__".split()
_FUNCTIONS = "is_floating_point is_complex numel".split()
_ATTRIBUTES = (
    "shape ndim dtype device layout requires_grad is_leaf "
    "is_cuda is_cpu is_meta is_sparse is_quantized is_mkldnn is_nested is_mps is_xpu"
).split()
_METADATA = frozenset(
    [
        *(getattr(Tensor, name) for name in _METHODS),
        *(getattr(torch, name) for name in _FUNCTIONS),
        *(getattr(Tensor, name).__get__ for name in _ATTRIBUTES),
    ]
)
