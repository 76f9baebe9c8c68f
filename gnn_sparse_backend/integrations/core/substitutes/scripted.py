"""Functions of faces: counted where Python calls them, and operators of ``torch.ops.gsb`` where TorchScript does, which
runs no Python.
"""

from __future__ import annotations

import functools
import inspect
import linecache
from collections.abc import Callable
from inspect import Parameter
from typing import Any, Optional, TypeVar  # TorchScript's words

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.library import Library

from ....ops.core.library import NAMESPACE
from ..counters import ours


class CompiledName:
    """What TorchScript asks a class for, where programs have a twin in its place: the twin's name in programs, as
    ``name`` gives it, which compiles the twin before that.
    """

    def __init__(self, name: Callable[[], str]) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> str:
        return self._name()


F = TypeVar("F", bound=Callable[..., Any])
_LIBRARY = Library("gsb", "FRAGMENT")
_TYPES = {
    # as annotated: (in a schema, to TorchScript)
    "Tensor": ("Tensor", "Tensor"),
    "Tensor | None": ("Tensor?", "Optional[Tensor]"),
    "int": ("int", "int"),
    "int | None": ("int?", "Optional[int]"),
    "float": ("float", "float"),
    "float | None": ("float?", "Optional[float]"),
    "bool": ("bool", "bool"),
    "str": ("str", "str"),
    "str | None": ("str?", "Optional[str]"),
    "list[Tensor]": ("Tensor[]", "List[Tensor]"),
    "list[Tensor] | None": ("Tensor[]?", "Optional[List[Tensor]]"),
    "tuple[Tensor, Tensor]": ("(Tensor, Tensor)", "Tuple[Tensor, Tensor]"),
    "tuple[Tensor, Tensor | None]": ("(Tensor, Tensor?)", "Tuple[Tensor, Optional[Tensor]]"),
    "tuple[Tensor, Tensor, Tensor | None]": ("(Tensor, Tensor, Tensor?)", "Tuple[Tensor, Tensor, Optional[Tensor]]"),
}
_WRITTEN = "Tensor(a!)?"
"""The schema of ``out=``: TorchScript leaves out a call that writes to nothing and whose result nobody reads."""
_WORDS = {"List": list, "Optional": Optional, "Tensor": Tensor, "Tuple": tuple, "torch": torch}


def public(library: str, scripted: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """Make a decorator of a function that stands for one of ``library``, whose parameters are annotated by words of
    ``_TYPES``.

    scripted: what TorchScript compiles in its place, where the annotations are others; by default a call of the
    operator ``gsb::<library>_<name>``.
    """

    def decorated(function: F) -> F:
        calling = counted(library)(function)
        # TorchScript asks whether there is a mark, torch.compile whether it is true
        calling.__script_if_tracing_wrapper = False  # type: ignore[attr-defined]
        compiled = operator(library)(function) if scripted is None else scripted
        compiled.__name__ = function.__name__  # which TorchScript holds against what it was asked for
        calling.__original_fn = compiled  # type: ignore[attr-defined]
        return calling

    return decorated


def counted(library: str) -> Callable[[F], F]:
    """Make a decorator of a function whose calls are counted by its name."""

    def decorated(function: F) -> F:
        name = function.__name__

        @functools.wraps(function)
        def calling(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling():
                ours(library, name)
            return function(*args, **kwargs)

        return calling  # type: ignore[return-value]

    return decorated


def operator(library: str) -> Callable[[F], Callable[..., Any]]:
    """Make a decorator that has TorchScript know a function as ``gsb::<library>_<name>``, and returns what calls it."""

    def decorated(function: F) -> Callable[..., Any]:
        name = f"{library}_{function.__name__.lstrip('_')}"
        NAMESPACE.declare(functools.partial(_register, name, _schema(function), function))
        return _calling(name, function)

    return decorated


def _register(name: str, schema: str, function: Callable[..., Any]) -> None:
    _LIBRARY.define(name + schema)
    _LIBRARY.impl(name, function, "CompositeImplicitAutograd")


def _schema(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parts = []
    for each in signature.parameters.values():
        kind = _WRITTEN if each.name == "out" else _TYPES[each.annotation][0]
        parts.append(f"{kind} {each.name}{_default(each, '=').replace(chr(39), chr(34))}")
    return f"({', '.join(parts)}) -> {_TYPES[signature.return_annotation][0]}"


def _calling(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the same parameters that calls the operator, with its text where TorchScript looks for it."""
    signature = inspect.signature(function)
    parameters = [f"{p.name}: {_TYPES[p.annotation][1]}{_default(p, ' = ')}" for p in signature.parameters.values()]
    text = (
        f"def {function.__name__}({', '.join(parameters)}) -> {_TYPES[signature.return_annotation][1]}:\n"
        f"    return torch.ops.gsb.{name}({', '.join(signature.parameters)})\n"
    )
    file = f"<gsb {name}>"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    names: dict[str, Any] = {**_WORDS, "__name__": __name__}
    exec(compile(text, file, "exec"), names)
    found: Callable[..., Any] = names[function.__name__]
    return found


def _default(parameter: Parameter, sign: str) -> str:
    return "" if parameter.default is Parameter.empty else f"{sign}{parameter.default!r}"
