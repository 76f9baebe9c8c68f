"""What structures have in common: nothing can be set on them, live ones are found by the arrays that they own, and they
move between devices and processes.
"""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .derived import Keeps

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


_set = object.__setattr__


class Structure(Immutable, Keeps):
    """A structure that class methods make, and that is found again by the arrays that it owns.

    An array is told by its address, which identifies it only while its owner is alive, and a structure that can be
    found holds its arrays.
    """

    __slots__ = ("__weakref__",)

    _live: ClassVar[weakref.WeakValueDictionary[tuple, Structure]]

    def __init_subclass__(cls) -> None:
        cls._live = weakref.WeakValueDictionary()

    @classmethod
    def _new(cls, **attributes: Any) -> Self:
        """Make one with these attributes, which are known to be right."""
        self = object.__new__(cls)
        for name, value in attributes.items():
            _set(self, name, value)
        return self

    def _found_by(self, *arguments: Tensor | int | None) -> Self:
        """Let it be found by its arrays and whatever else two such structures may differ in. Returns it."""
        self._live[_key(arguments)] = self
        return self

    @classmethod
    def _find_live(cls, *arguments: Tensor | int | None) -> Self | None:
        """The live structure that is found by these (`_found_by`)."""
        return cls._live.get(_key(arguments))  # type: ignore[return-value]


class Movable(Structure):
    """A structure that ``_make`` makes of its parts, tensors among them: on any device, and in another process."""

    __slots__ = ()

    device: torch.device

    @abstractmethod
    def _parts(self) -> tuple[Any, ...]:
        """The arguments of ``_make``."""

    def to(self, device: torch.device | str | int) -> Self:
        """The structure on ``device``: itself if it is there already."""
        device = torch.empty(0, device=device).device
        if device == self.device:
            return self
        with torch.inference_mode(False):  # made now, kept for a backward pass later
            return self._make(*tree_map_only(Tensor, lambda array: array.to(device), self._parts()))

    def __reduce__(self) -> tuple[Any, ...]:
        return self._make, self._parts()


def _key(arguments: Iterable[Tensor | int | None]) -> tuple:
    return tuple((x.data_ptr(), x.shape, x.dtype) if isinstance(x, Tensor) else x for x in arguments)
