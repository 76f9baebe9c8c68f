"""What structures have in common: nothing can be set on them, and what is derived from them is made once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class Immutable:
    """Attributes are set by ``object.__setattr__`` when an object is made, and never again; copies are the object
    itself.
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: cannot delete {name!r}")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def once(derived: dict[Any, Any], key: Hashable, make: Callable[[], Any]) -> Any:
    """The value under ``key``. Threads that race may both make it; all of them get the first."""
    value = derived.get(key)
    return derived.setdefault(key, make()) if value is None else value
