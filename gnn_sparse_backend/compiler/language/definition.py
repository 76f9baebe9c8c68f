"""What a user's function is, as a short digest: kernels and measured choices are kept under it, not under a name."""

from __future__ import annotations

import hashlib
import inspect
import marshal
import types
from collections.abc import Callable, Iterator
from typing import Any

PLAIN = (int, float, complex, str, bytes, bool, type(None))


def is_own(function: Callable[..., Any]) -> bool:
    """Whether a function is of this package, whose source is a part of every key."""
    return (function.__module__ or "").partition(".")[0] == __name__.partition(".")[0]


def digest_of(*functions: Callable[..., Any] | None) -> str:
    """A digest of the code of Python functions, of the functions of their modules that they call, and of the plain
    values that they read: in closures, defaults and globals. It is the same in every process.

    Raises TypeError where there is no code to read, as of a function written in C.
    """
    digest, seen = hashlib.blake2b(digest_size=8), set[int]()
    for function in functions:
        known = function if function is None else inspect.unwrap(function)
        if known is not None and not isinstance(known, types.FunctionType):
            raise TypeError(f"{function!r} is no Python function: there is no code that kernels could be kept under")
        _add(known, digest.update, seen)
    return digest.hexdigest()


def _add(value: Any, update: Callable[[bytes], None], seen: set[int]) -> None:
    if isinstance(value, PLAIN):
        update(f"{value!r};".encode())
    elif isinstance(value, tuple | list):
        for each in value:
            _add(each, update, seen)
    elif isinstance(value, types.FunctionType) and id(value) not in seen:
        seen.add(id(value))
        # version 2 says the same of equal code: later ones note which of its objects others refer to
        update(marshal.dumps(value.__code__, 2))
        for name, read in sorted(_read(value).items()):
            if isinstance(read, PLAIN) or getattr(read, "__module__", None) == value.__module__:
                update(name.encode())
                _add(read, update, seen)
        for default in (*(value.__defaults__ or ()), *sorted((value.__kwdefaults__ or {}).items())):
            _add(default, update, seen)


def _read(function: types.FunctionType) -> dict[str, Any]:
    """What a function, and the functions written inside it, read from around them, by name."""
    found = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
