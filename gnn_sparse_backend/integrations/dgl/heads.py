"""The scores of nodes in DGL's attention layers: ``(feat * self.attn_l).sum(dim=-1)``, as one operator.

The layer's own ``forward`` runs; only its vectors of scores are told what they are multiplied by. The product that DGL makes
and sums is as large as the features, forward and backward, and on sparse graphs takes as long as the attention.
"""
from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ...ops.row_dots import row_dots
from ..lazy import transformed
from .operands import refuse

VECTORS = ("attn_l", "attn_r")
_PRODUCTS = (Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.mul)


def with_row_dots(original: Callable) -> Callable:
    """A layer's ``forward`` whose vectors of scores know how they are used."""

    @functools.wraps(original)
    def forward(self, *args, **kwargs):
        if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or transformed() is not None:
            return original(self, *args, **kwargs)
        return original(_Layer(self), *args, **kwargs)

    return forward


class _Layer:
    """A layer as its ``forward`` sees it."""

    __slots__ = ("_layer",)

    def __init__(self, layer) -> None:
        object.__setattr__(self, "_layer", layer)

    def __getattr__(self, name: str):
        value = getattr(self._layer, name)
        return _Vector(value) if name in VECTORS else value

    def __setattr__(self, name: str, value) -> None:
        setattr(self._layer, name, value)


class _Value:
    """What stands for a tensor, and becomes it where anything but the expected is asked of it."""

    __slots__ = ()

    def tensor(self) -> Tensor:
        raise NotImplementedError

    def __getattr__(self, name: str):
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in _PRODUCTS and len(args) == 2 and not kwargs:
            first, second = args
            if type(second) is _Vector and type(first) is Tensor and second.fits(first):
                return _Product(first, second)
        plain = lambda x: x.tensor() if isinstance(x, _Value) else x
        return function(*map(plain, args), **{name: plain(x) for name, x in (kwargs or {}).items()})


class _Vector(_Value):
    """One vector per head, (1, H, D)."""

    __slots__ = ("parameter",)

    def __init__(self, parameter: Tensor) -> None:
        self.parameter = parameter

    def tensor(self) -> Tensor:
        return self.parameter

    def fits(self, features: Tensor) -> bool:
        """Whether our operator takes the product with ``features``."""
        mine = self.parameter
        return (mine.dim() == 3 == features.dim() and mine.shape[0] == 1 and features.shape[1:] == mine.shape[1:]
                and refuse(features, mine) is None and features.shape[0] > 0)


class _Product(_Value):
    """Features times a vector per head."""

    __slots__ = ("features", "vector", "value")

    def __init__(self, features: Tensor, vector: _Vector) -> None:
        self.features, self.vector, self.value = features, vector.parameter, None

    def tensor(self) -> Tensor:
        if self.value is None:
            self.value = self.features * self.vector
        return self.value

    def sum(self, *args, **kwargs) -> Tensor:
        dim = args[0] if len(args) == 1 and not kwargs else kwargs.get("dim") if not args and len(kwargs) == 1 else None
        if dim in (-1, 2) and type(dim) is int:
            return row_dots(self.features, self.vector[0])
        return self.tensor().sum(*args, **kwargs)


def _operator(name: str) -> Callable:
    def operator(self, *others):
        return getattr(Tensor, name)(self.tensor(), *(x.tensor() if isinstance(x, _Value) else x for x in others))

    return operator


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(_Value, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(_Value, f"__r{_name}__", _operator(f"__r{_name}__"))
for _name in ("neg", "pos", "abs", "getitem", "len", "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(_Value, f"__{_name}__", _operator(f"__{_name}__"))
