"""Reversible replacement of attributes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

_ABSENT = object()
_WITHOUT = {
    *("_pytest", "dgl", "hypothesis", "matplotlib", "mpmath", "networkx", "numpy", "pandas", "requests", "rich"),
    *("scipy", "sklearn", "sympy", "torch", "tvm", "tvm_ffi", "urllib3", __name__.partition(".")[0]),
}
"""Packages none of whose modules holds a function of a framework by name, and which have most of a process's globals.
Python's own are not among them: a user's module may have the name of one.
"""


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


def put_back(originals: Mapping[Callable, Callable]) -> None:
    """Set every module global that is a function of ours to its original, in modules imported in between, too."""
    for module, name, function in globals_among(originals):
        setattr(module, name, originals[function])


def globals_among(functions: Collection[Callable]) -> list[tuple]:
    """``(module, name, function)`` of every module global that is one of them: of frameworks and of users, which import
    helpers by name.

    In one pass over what may be a hundred thousand globals: modules that hold none of the functions are passed over
    without a look at the names.
    """
    identities = {id(function) for function in functions}
    return [
        (module, name, held)
        for module_name, module in list(sys.modules.items())
        if module_name.partition(".")[0] not in _WITHOUT
        and not identities.isdisjoint(map(id, list(getattr(module, "__dict__", {}).values())))
        for name, held in list(vars(module).items())
        if id(held) in identities
    ]
