"""What a user's function is, as a short digest: kernels and measured choices are kept under it, not under a name."""

from __future__ import annotations

import hashlib
import inspect
import marshal
import types
from collections.abc import Callable
from typing import Any

PLAIN = (int, float, complex, str, bytes, bool, type(None))


def digest_of(*functions: Callable[..., Any] | None) -> str:
    """A digest of the code of functions, of the functions of theirs that they call, and of the plain values that they
    read; "" where all are this package's, whose source is a part of every key.
    """
    own = __name__.partition(".")[0]
    if all(f is None or (f.__module__ or "").partition(".")[0] == own for f in functions):
        return ""
    digest, seen = hashlib.blake2b(digest_size=4), set[int]()
    for function in functions:
        _add(function, digest.update, seen)
    return digest.hexdigest()


def _add(value: Any, update: Callable[[bytes], None], seen: set[int]) -> None:
    if id(value) in seen:
        return
    if isinstance(value, PLAIN):
        update(repr(value).encode())
    elif isinstance(value, tuple | list):
        for each in value:
            _add(each, update, seen)
    elif isinstance(value, types.FunctionType):
        seen.add(id(value))
        # version 2 says the same of equal code: later ones note which of its objects others refer to
        update(marshal.dumps(value.__code__, 2))
        known = inspect.getclosurevars(value)
        for name, read in sorted({**known.globals, **known.nonlocals}.items()):
            if isinstance(read, PLAIN) or getattr(read, "__module__", None) == value.__module__:
                update(name.encode())
                _add(read, update, seen)
        for default in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).items()):
            _add(default, update, seen)
