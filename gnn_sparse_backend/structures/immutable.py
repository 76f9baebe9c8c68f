"""What structures have in common: nothing can be set on them, and live ones are found by the arrays that they own."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self

S = TypeVar("S")


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


class Live(Generic[S]):
    """Structures of a kind, as long as somebody else holds them.

    An array is told by its address, which identifies it only while its owner is alive, and every structure in the table
    holds its arrays. ``rest``: what else two structures may differ in.
    """

    def __init__(self) -> None:
        self._found: weakref.WeakValueDictionary[tuple, S] = weakref.WeakValueDictionary()

    def add(self, structure: S, arrays: Sequence[Tensor | None], *rest: Hashable) -> None:
        self._found[_key(arrays, rest)] = structure

    def find(self, arrays: Sequence[Tensor | None], *rest: Hashable) -> S | None:
        """The structure that owns these arrays."""
        return self._found.get(_key(arrays, rest))


def _key(arrays: Sequence[Tensor | None], rest: tuple[Hashable, ...]) -> tuple:
    return (*(None if array is None else (array.data_ptr(), array.shape, array.dtype) for array in arrays), *rest)
