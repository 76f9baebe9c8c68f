"""What a layer was called with, where nothing in it is lazy: its user may write to that before a gradient reads it."""

from __future__ import annotations

import threading
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

PASSING: Any = object()
"""In the place of what a layer was called with: it is so small that all of it is the framework's."""


class _OfThread(threading.local):
    given: Any = None


_now = _OfThread()


def passing() -> bool:
    """Whether the layer that is being called is the framework's, with all that it calls."""
    return _now.given is PASSING


def enter(arguments: Any) -> Any:
    """A layer is called with these, or `PASSING`. Returns what `leave` is to be given."""
    before, _now.given = _now.given, arguments
    return before


def leave(before: Any) -> None:
    """The layer has ended."""
    _now.given = before


def lasting(x: Tensor) -> Tensor:
    """What a gradient reads again: the tensor, or a copy of one that is of the user's memory. Outside of a layer nobody
    knows whose it is.
    """
    arguments = _now.given
    if arguments is None:
        return x.clone()
    memory = x.untyped_storage().data_ptr()
    shown = any(
        isinstance(each, Tensor) and each.untyped_storage().data_ptr() == memory for each in tree_leaves(arguments)
    )
    return x.clone() if shown else x
