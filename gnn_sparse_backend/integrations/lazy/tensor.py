"""``LazyTensor``: a tensor of one row per edge that has not been computed yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils._pytree import tree_map_only

from .recipes import Recipe, computed

_make_wrapper = Tensor._make_wrapper_subclass


class LazyTensor(Tensor):
    """A (E, ...) tensor that stands for a ``Recipe`` without holding its values.

    Shape, type and device are known; arithmetic and views give lazy tensors again (``HANDLERS``); a reduction or an
    attention runs one kernel (``reductions.py``); anything else first computes the tensor and goes on with an
    ordinary one. It is a node of the autograd graph, so code that PyTorch does not announce through
    ``__torch_function__`` (custom autograd functions, TorchScript, extensions) gets right values and right gradients
    too.
    """

    _recipe: Recipe

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
        elif func in _WATCHERS:
            _check_watchable(args[0])
        args, kwargs = materialise((args, kwargs or {}), f"the message is used by {name_of(func)}")
        return func(*args, **kwargs)

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


DEFERRED = frozenset((LazyTensor, tuple, list))
"""Types of arguments of a framework's functions that ``materialise`` looks into."""


def lazy_tensor(recipe: Recipe) -> LazyTensor:
    """The tensor of a recipe."""
    if recipe.mode[0]:
        for x in recipe.operands:
            if x.requires_grad:
                return _record(recipe, *recipe.operands)
    return _wrap(recipe)


def value(lazy: LazyTensor, reason: str) -> Tensor:
    """The lazy tensor computed. reason: what for, counted where the framework has to compute it."""
    recipe = lazy._recipe
    if not recipe.mode[0] and torch.is_grad_enabled():
        with torch._C.DisableTorchFunctionSubclass():
            if lazy.requires_grad:  # the result of an autograd function, which gave it a history of its own
                return _Identity.apply(lazy)
    return recipe.value(reason)


def materialise(tree, reason: str):
    """``tree``, of plain containers, with every lazy tensor in it computed."""
    kind = type(tree)
    if kind is LazyTensor:
        return value(tree, reason)
    if kind is tuple or kind is list:
        return kind([materialise(item, reason) for item in tree])
    if kind is dict:
        return {key: materialise(item, reason) for key, item in tree.items()}
    if isinstance(tree, (tuple, list, dict)):  # named tuples and other containers that pytree knows
        return tree_map_only(LazyTensor, lambda lazy: value(lazy, reason), tree)
    return tree


def name_of(func) -> str:
    """What to call a function of PyTorch in a reason."""
    if getattr(func, "__name__", None) in ("__get__", "__set__"):
        return f".{func.__self__.__name__}"
    return getattr(func, "__name__", None) or str(func)


def _wrap(recipe: Recipe) -> LazyTensor:
    lazy = _make_wrapper(LazyTensor, recipe.shape, dtype=recipe.dtype, device=recipe.device)
    lazy._recipe = recipe
    recipe.host.follow(lazy)
    return lazy


class _Identity(Function):
    @staticmethod
    def forward(ctx, lazy):
        return lazy._recipe.value_below_autograd("the message is the result of an autograd function")

    @staticmethod
    def backward(ctx, grad):
        return grad


class _History(Function):
    """Autograd's view of a recipe, used only where a lazy tensor is differentiated without having been computed by
    ``Recipe.value``. The recipe is kept on ``ctx`` and not saved: it is not data, and it checks versions itself."""

    @staticmethod
    def forward(ctx, recipe, *operands):
        ctx.recipe = recipe
        return _wrap(recipe)

    @staticmethod
    def backward(ctx, grad):
        recipe, needed = ctx.recipe, ctx.needs_input_grad[1:]
        recipe.check_unmodified()
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            operands = tuple(map(computed, recipe.operands))
            if not again:
                operands = tuple(x.detach().requires_grad_(wanted) for x, wanted in zip(operands, needed))
            value = recipe.on(operands).value("the gradient of a message that was used below autograd")
            wanted = [x for x, one in zip(operands, needed) if one]
            grads = iter(torch.autograd.grad(value, wanted, grad, create_graph=again, allow_unused=True))
        return None, *(next(grads) if one else None for one in needed)


# Function.apply without its handling of torch.func transforms, under which nothing is lazy: 2 us less.
_record = super(Function, _History).apply


def _check_watchable(lazy) -> None:
    """A hook sees the gradient of the tensor that it is put on: too late once that has become something else."""
    if type(lazy) is LazyTensor and lazy._recipe.used and lazy._recipe.computed is None and lazy.requires_grad:
        raise RuntimeError(
            "gnn_sparse_backend has made this message part of a later one without computing it, so its gradient is "
            "not there to be seen; register the hook before the message is used, or run this layer with the backend "
            "off: "
            f"gnn_sparse_backend.disable({lazy._recipe.host.name!r})"
        )


class Handler(NamedTuple):
    """What ``LazyTensor`` does instead of computing its values; where ``function`` returns ``NotImplemented`` they are
    computed after all. keywords: the names of arguments that it knows."""

    function: Callable
    keywords: frozenset[str]


HANDLERS: dict[Callable, Handler] = {}
"""By function of PyTorch."""

_WATCHERS = frozenset([Tensor.register_hook, Tensor.retain_grad])

_ALLOCATORS = frozenset([Tensor.new_zeros, Tensor.new_ones, Tensor.new_empty, Tensor.new_full])

_METHODS = "size dim numel nelement ndimension is_floating_point is_complex get_device __len__".split()
_FUNCTIONS = "is_floating_point is_complex numel".split()
_ATTRIBUTES = (
    "shape ndim dtype device layout requires_grad "
    "is_cuda is_cpu is_meta is_sparse is_quantized is_mkldnn is_nested is_mps is_xpu"
).split()
_METADATA = frozenset(
    [
        *(getattr(Tensor, name) for name in _METHODS),
        *(getattr(torch, name) for name in _FUNCTIONS),
        *(getattr(Tensor, name).__get__ for name in _ATTRIBUTES),
    ]
)
