"""``LazyMessage``: the gathered features of a message that has not been gathered yet."""
from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_map_only

from ..counters import fallback

PROPAGATE = "propagate"
_saved_tensors_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_make_wrapper = Tensor._make_wrapper_subclass


class Recipe:
    """How to compute a message: ``features[index]``, then a view, then the product with a weight.

    Attributes:
        gather, layer: the framework's own gather, ``gather(layer, features, index)``.
        features: (n, ...) node features.
        index: (E,) node of every edge.
        weight: None, or a tensor of shape (E, 1, ...) or (E, H, 1) that broadcasts against the message.
        weight_first: whether the weight is the left operand of the product.
        shape: shape of the message, (E, ...).
        dtype: type of the message.
    """

    __slots__ = ("gather", "layer", "features", "index", "weight", "weight_first", "shape", "dtype",
                 "_versions", "_weight_version", "_grad", "_inference", "_hooks", "_value")

    def __init__(self, gather, layer, features, index, weight, weight_first, shape, dtype):
        self.gather, self.layer, self.features, self.index = gather, layer, features, index
        self.weight, self.weight_first, self.shape, self.dtype = weight, weight_first, shape, dtype
        self._versions = (_version(features), _version(index))
        self._weight_version = None if weight is None else _version(weight)
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._hooks = _saved_tensors_hooks(True)
        self._value = None

    def pending(self) -> bool:
        """Whether the message may still be computed together with its reduction: nobody has looked at it, and the mode
        that it was asked for in is the mode now."""
        return self._value is None and self._same_mode()

    def derive(self, weight: Tensor | None, weight_first: bool, shape: torch.Size, dtype: torch.dtype) -> Recipe:
        """A recipe for the same gather."""
        recipe = Recipe(self.gather, self.layer, self.features, self.index, weight, weight_first, shape, dtype)
        recipe._versions = self._versions
        return recipe

    def value(self, reason: str) -> Tensor:
        """The message itself, computed once by the framework's own operations, in the mode of the gather."""
        if self._value is None:
            self.check_unmodified()
            fallback("pyg", PROPAGATE, reason)
            if self._same_mode():
                self._value = self._compute(self.features, self.weight)
            else:
                with (torch.inference_mode(self._inference), torch.set_grad_enabled(self._grad),
                      saved_tensors_hooks(*self._hooks or (_same, _same))):
                    self._value = self._compute(self.features, self.weight)
        return self._value

    def value_below_autograd(self, reason: str) -> Tensor:
        """The message without its history, for code that PyTorch calls below autograd."""
        if self._value is not None:
            return self._value.detach()
        self.check_unmodified()
        fallback("pyg", PROPAGATE, reason)
        with torch.no_grad():
            return self._compute(self.features.detach(), None if self.weight is None else self.weight.detach())

    def _compute(self, features: Tensor, weight: Tensor | None) -> Tensor:
        message = self.gather(self.layer, features, self.index)
        if message.shape != self.shape:
            message = message.view(self.shape)
        if weight is None:
            return message
        return weight * message if self.weight_first else message * weight

    def check_unmodified(self) -> None:
        """Raise if what the message is made of was written to since: its values at the time of the gather are lost."""
        if (self._versions != (_version(self.features), _version(self.index))
                or self.weight is not None and self._weight_version != _version(self.weight)):
            raise RuntimeError(
                "gnn_sparse_backend gathers the messages of a PyG layer only when they are used, but the node features, "
                "the edge weights or the edge index were modified in place in between; modify a clone instead, or run "
                "this layer with the backend off: gnn_sparse_backend.disable('pyg')")

    def _same_mode(self) -> bool:
        # The hooks tell whether this is inside a checkpointed region or under an offload to another device.
        return (self._grad == torch.is_grad_enabled() and self._inference == torch.is_inference_mode_enabled()
                and self._hooks == _saved_tensors_hooks(True))


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


class LazyMessage(Tensor):
    """A (E, ...) tensor that stands for ``features[index]``, possibly times edge weights, without holding it.

    Shape, type and device are known; a product with edge weights stays lazy; a sum or mean reduction runs one sparse
    kernel (see ``reduce.py``); anything else first computes the message with the framework's operations and goes on
    with an ordinary tensor. The tensor is a node of the autograd graph, so code that PyTorch does not announce through
    ``__torch_function__`` (custom autograd functions, TorchScript) gets right values and right gradients too.
    """

    _recipe: Recipe

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        handler = HANDLERS.get(func)
        if handler is not None:
            result = NotImplemented if kwargs else handler(*args)
            if result is not NotImplemented:
                return result
        elif func in _ALLOCATORS:
            lazy, *sizes = args
            return getattr(lazy._recipe.features, func.__name__)(*sizes, **{"dtype": lazy._recipe.dtype, **kwargs})
        elif func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        args, kwargs = materialise((args, kwargs), f"the message is used by {_name(func)}")
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        reason = f"the message is used by {func} inside an autograd function or compiled code"
        args, kwargs = tree_map_only(cls, lambda lazy: lazy._recipe.value_below_autograd(reason), (args, kwargs or {}))
        return func(*args, **kwargs)

    @property
    def shape(self):
        return self._recipe.shape

    def size(self, dim=None):
        shape = self._recipe.shape
        return shape if dim is None else shape[dim]

    def dim(self):
        return len(self._recipe.shape)

    def __mul__(self, other):
        return times(self, other, weight_first=False)

    def __rmul__(self, other):
        return times(self, other, weight_first=True)


def lazy_message(recipe: Recipe) -> LazyMessage:
    """The tensor of a recipe."""
    if recipe._grad and (recipe.features.requires_grad or recipe.weight is not None and recipe.weight.requires_grad):
        return _record(recipe.features, recipe.weight, recipe)
    return _wrap(recipe)


def materialise(tree, reason: str):
    """``tree``, of plain containers, with every lazy message in it computed."""
    kind = type(tree)
    if kind is LazyMessage:
        return tree._recipe.value(reason)
    if kind is tuple or kind is list:
        return kind([materialise(item, reason) for item in tree])
    if kind is dict:
        return {key: materialise(item, reason) for key, item in tree.items()}
    if isinstance(tree, (tuple, list, dict)):  # named tuples and other containers that pytree knows
        return tree_map_only(LazyMessage, lambda lazy: lazy._recipe.value(reason), tree)
    return tree


def times(lazy: LazyMessage, other, weight_first: bool) -> Tensor:
    """The product of a message and ``other``: lazy if ``other`` is one number per edge, or per edge and head."""
    recipe = lazy._recipe
    if recipe.weight is None and recipe.pending() and _is_edge_weight(other, recipe):
        dtype = recipe.dtype if other.dtype is recipe.dtype else torch.promote_types(other.dtype, recipe.dtype)
        return lazy_message(recipe.derive(other, weight_first, recipe.shape, dtype))
    message, other = materialise((lazy, other), "the message is multiplied by something other than one edge weight")
    return other * message if weight_first else message * other


def _is_edge_weight(other, recipe: Recipe) -> bool:
    if type(other) is not Tensor and type(other) is not torch.nn.Parameter:
        return False
    shape, own = other.shape, recipe.shape
    if len(shape) != len(own) or shape[0] != own[0] or shape[-1] != 1 or other.layout is not torch.strided:
        return False
    if len(shape) == 3 and shape[1] != 1 and shape[1] != own[1]:
        return False
    return other.device.type == "cpu" and not other.is_complex()


def _wrap(recipe: Recipe) -> LazyMessage:
    lazy = _make_wrapper(LazyMessage, recipe.shape, dtype=recipe.dtype, device=recipe.features.device)
    lazy._recipe = recipe
    return lazy


class _History(Function):
    """Autograd's view of a recipe, used only where a lazy message is differentiated without having been computed by
    ``Recipe.value``. The recipe is kept on ``ctx`` and not saved: it is not data, and it checks versions itself."""

    @staticmethod
    def forward(ctx, features, weight, recipe):
        ctx.recipe = recipe
        return _wrap(recipe)

    @staticmethod
    def backward(ctx, grad):
        recipe = ctx.recipe
        features, weight, index = recipe.features, recipe.weight, recipe.index
        grad_features = grad_weight = None
        if weight is not None:
            recipe.check_unmodified()
        if ctx.needs_input_grad[0]:
            per_edge = grad if weight is None else grad * weight
            per_edge = per_edge.to(features.dtype).reshape(index.shape + features.shape[1:])
            grad_features = torch.zeros_like(features).index_add(0, index, per_edge)
        if ctx.needs_input_grad[1]:
            messages = features.index_select(0, index).view(recipe.shape)
            grad_weight = (grad * messages).sum_to_size(weight.shape).to(weight.dtype)
        return grad_features, grad_weight, None


# Function.apply without its handling of torch.func transforms, under which no gather is lazy: 2 us less.
_record = super(Function, _History).apply


def _name(func) -> str:
    if getattr(func, "__name__", None) in ("__get__", "__set__"):
        return f".{func.__self__.__name__}"
    return getattr(func, "__name__", None) or str(func)


def _view(lazy, *shape):
    """``x_j.view(-1, heads, width)`` of features (n, heads * width): still a gather."""
    if type(lazy) is not LazyMessage:
        return NotImplemented
    recipe = lazy._recipe
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if not all(type(extent) is int for extent in shape) or len(shape) not in (2, 3) or recipe.weight is not None:
        return NotImplemented
    edges, *rest = shape
    width = recipe.shape[1:].numel()
    if edges not in (-1, recipe.shape[0]) or min(rest) < 1 or torch.Size(rest).numel() != width or not recipe.pending():
        return NotImplemented
    return lazy_message(recipe.derive(None, False, torch.Size((recipe.shape[0], *rest)), recipe.dtype))


def _multiply(first, second):
    if type(first) is LazyMessage:
        return times(first, second, weight_first=False)
    return times(second, first, weight_first=True)


def _expand_as(tensor, other):
    return NotImplemented if type(tensor) is LazyMessage else tensor.expand(other.shape)


HANDLERS = {
    torch.mul: _multiply, torch.multiply: _multiply, Tensor.mul: _multiply, Tensor.multiply: _multiply,
    Tensor.__mul__: _multiply,
    Tensor.view: _view, Tensor.reshape: _view,
    Tensor.expand_as: _expand_as,
}
"""What ``LazyMessage`` does instead of computing the message, called with positional arguments only; where it returns
``NotImplemented`` the message is computed after all."""

_ALLOCATORS = frozenset([Tensor.new_zeros, Tensor.new_ones, Tensor.new_empty, Tensor.new_full])

_METADATA = frozenset([
    Tensor.size, Tensor.dim, Tensor.numel, Tensor.nelement, Tensor.ndimension, Tensor.is_floating_point,
    Tensor.is_complex, Tensor.get_device, Tensor.__len__, torch.is_floating_point, torch.is_complex, torch.numel,
    *[getattr(Tensor, name).__get__ for name in
      ("shape", "ndim", "dtype", "device", "layout", "requires_grad", "is_cuda", "is_cpu", "is_meta", "is_sparse",
       "is_quantized", "is_mkldnn", "is_nested", "is_mps", "is_xpu")],
])
