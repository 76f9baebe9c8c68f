"""What keeps memory beside tensors and structures: each says how many bytes, for ``gsb.memory()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[[], int])

ACCOUNTS: dict[str, Callable[[], int]] = {}
"""Functions that return how many bytes are kept now, under what is kept, in words."""


def account(words: str) -> Callable[[F], F]:
    """Decorator: this function returns the bytes of what the words name."""

    def enter(function: F) -> F:
        ACCOUNTS[words] = function
        return function

    return enter
