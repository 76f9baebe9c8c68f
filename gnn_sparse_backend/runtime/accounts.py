"""What keeps memory beside tensors and structures: each says how many bytes, for ``gsb.memory()``."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

F = TypeVar("F", bound=Callable[[], int])

ACCOUNTS: dict[str, Callable[[], int]] = {}
"""Functions that return how many bytes are kept now, under what is kept, in words."""


FILES: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Who has mapped a file into memory, by the address where its numbers begin."""


def file_of(x: Tensor) -> Any:
    """Who has mapped the file whose numbers a tensor shows; None of a tensor in memory of its own."""
    return FILES.get(x.untyped_storage().data_ptr()) if FILES else None


def account(words: str) -> Callable[[F], F]:
    """Decorator: this function returns the bytes of what the words name."""

    def enter(function: F) -> F:
        ACCOUNTS[words] = function
        return function

    return enter
