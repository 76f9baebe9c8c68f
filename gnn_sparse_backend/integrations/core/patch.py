"""Reversible replacement of attributes."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

_ABSENT = object()


class _Patch(NamedTuple):
    owner: Any
    name: str
    old: Any  # what the owner's own __dict__ held, or _ABSENT
    new: Any


class Patches:
    """Attributes replaced on modules, classes or instances, with what is needed to put each of them back.

    The owner's own `__dict__` is what is saved: a descriptor (staticmethod, property) comes back as itself, and an
    attribute that the owner inherited or did not have is deleted again.
    """

    def __init__(self) -> None:
        self._applied: list[_Patch] = []

    def __len__(self) -> int:
        return len(self._applied)

    def set(self, owner: Any, name: str, new: Any) -> Any:
        """Set `owner.name` to `new` and return what `owner.name` was (None if there was no such attribute)."""
        before = getattr(owner, name, None)
        self._applied.append(_Patch(owner, name, vars(owner).get(name, _ABSENT), new))
        setattr(owner, name, new)
        return before

    def undo(self) -> None:
        """Put every attribute back, the last one set first. Calling it again does nothing.

        Warns where someone else has replaced an attribute since: that replacement is lost.
        """
        while self._applied:
            owner, name, old, new = self._applied.pop()
            if vars(owner).get(name, _ABSENT) is not new:
                warnings.warn(
                    f"{name!r} of {owner!r} was replaced after gnn_sparse_backend was enabled; "
                    "restoring the original drops that replacement",
                    RuntimeWarning,
                    stacklevel=2,
                )
            if old is not _ABSENT:
                setattr(owner, name, old)
            elif name in vars(owner):
                delattr(owner, name)
