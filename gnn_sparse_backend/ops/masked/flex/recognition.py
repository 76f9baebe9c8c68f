"""What a user's function reads, so that one like another is not traced again, and one that reads something else is."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module


class Unknown(Exception):
    """Something that a function reads and that cannot be compared with what it was."""


_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, type(Ellipsis))
_LIBRARIES = ("torch", "math", "operator", "builtins", "numpy")
_DEEPEST = 8


def contents_of(function: Callable[..., Any]) -> Hashable:
    """The function's code, and all that it reads from around it: equal ones compute the same. Tensors count by identity
    and version.

    Raises Unknown where it reads what nobody can compare.
    """
    return _of(function, 0)


def _of(value: Any, depth: int) -> Hashable:
    if depth > _DEEPEST:
        raise Unknown
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, Tensor):
        if value.is_inference():  # nobody knows when it is written to
            raise Unknown
        return "tensor", _Same(value), value._version, value.requires_grad
    if isinstance(value, (tuple, list)):
        return type(value), tuple(_of(each, depth + 1) for each in value)
    if isinstance(value, functools.partial):
        return "partial", _of(value.func, depth + 1), _of(value.args, depth + 1), _of_items(value.keywords, depth + 1)
    if isinstance(value, types.MethodType):
        return "method", _of(value.__func__, depth + 1), _Same(_checked(value.__self__))
    if isinstance(value, types.FunctionType):
        return _of_function(value, depth)
    if isinstance(value, types.ModuleType):
        return "module", value.__name__
    if isinstance(value, (type, types.BuiltinFunctionType)) or _is_of_library(value):
        return "name", _Same(value)
    raise Unknown


def _of_function(function: types.FunctionType, depth: int) -> Hashable:
    if _is_of_library(function):
        return "name", _Same(function)
    code = function.__code__
    cells = tuple(_of(cell.cell_contents, depth + 1) for cell in function.__closure__ or ())
    names, known = code.co_names, function.__globals__
    read = tuple((name, _of(known[name], depth + 1)) for name in names if name in known)
    return code, cells, read, _of(function.__defaults__ or (), depth + 1), _of_items(function.__kwdefaults__, depth + 1)


def _of_items(items: dict[str, Any] | None, depth: int) -> Hashable:
    return tuple((name, _of(value, depth)) for name, value in (items or {}).items())


def _is_of_library(value: Any) -> bool:
    module = getattr(value, "__module__", None) or ""
    return module.split(".")[0] in _LIBRARIES


def _checked(owner: Any) -> Any:
    """What a method is bound to may hold anything."""
    if isinstance(owner, Module) or not isinstance(owner, type):
        raise Unknown
    return owner


class _Same:
    """Equal to itself alone, and alive as long as it is compared with."""

    __slots__ = ("it",)

    def __init__(self, it: Any) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it

    def __hash__(self) -> int:
        return id(self.it)
