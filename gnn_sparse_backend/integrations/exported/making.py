"""Whether a package is being made: what frameworks' layers are then traced to is kept in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from torch.compiler import is_dynamo_compiling

_MAKING: ContextVar[bool] = ContextVar("making", default=False)


@contextlib.contextmanager
def making() -> Iterator[None]:
    """A package is made inside."""
    token = _MAKING.set(True)
    try:
        yield
    finally:
        _MAKING.reset(token)


def exporting() -> bool:
    """Whether a package is being made, into which operators go: by what traces it, no part of which is Dynamo."""
    return not is_dynamo_compiling() and _MAKING.get()
