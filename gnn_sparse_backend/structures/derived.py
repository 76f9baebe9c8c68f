"""Facts that a structure computes once and keeps: each a small class."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from ..compiler.cache.bounded import make_room

T = TypeVar("T")

MOST_FACTS = 512
"""Facts that a structure keeps: with more widths than that the older half is derived again."""


class Derived(ABC, Generic[T]):
    """A fact of a structure. Where there are several of its kind, a subclass is a frozen dataclass, whose fields say
    which; a class without fields has one object.

    @dataclass(frozen=True)
    class RowParts(Derived[tuple[Rows, ...]]):
        longest: int

        def compute(self, graph):
            return row_parts(graph.indptr, graph.indices, graph.shape, self.longest)

    graph.derived(RowParts(512))
    """

    _only: Any = None

    def __new__(cls, *fields: Any, **named: Any) -> Any:
        if fields or named or dataclasses.is_dataclass(cls):
            return super().__new__(cls)
        if cls.__dict__.get("_only") is None:
            cls._only = super().__new__(cls)
        return cls._only

    @abstractmethod
    def compute(self, structure: Any) -> T:
        """The fact. What it returns must not hold the structure, which keeps it."""

    def nbytes(self, value: T) -> int:
        """Bytes that ``value`` holds, each array once."""
        return sum(nbytes for _, nbytes in arrays_of(value))


class Keeps:
    """A structure with ``facts``: what it has computed of itself."""

    __slots__ = ()

    facts: dict[Derived[Any], Any]

    def derived(self, fact: Derived[T]) -> T:
        """The fact, computed at its first use. Threads that race may both compute it; all of them get the first."""
        value = self.facts.get(fact)
        if value is None:
            value = fact.compute(self)
            make_room(self.facts, MOST_FACTS)
            value = self.facts.setdefault(fact, value)
        return value

    def keepers(self) -> Iterator[tuple[str, Any, Any]]:
        """(in words, what has ``facts``, ``calls`` and ``plans``, its own arrays) of all that belongs to it."""
        yield type(self).__name__.lower(), self, [getattr(self, name, None) for name in _names_of(type(self))]

    def release(self) -> None:
        """Free all that was derived, which is derived again where it is needed. A call that is under way keeps what it
        uses.
        """
        for _, keeper, _ in list(self.keepers()):
            for name in ("facts", "calls", "plans"):
                getattr(keeper, name, {}).clear()


def arrays_of(value: Any) -> Iterator[tuple[int, int]]:
    """(address, bytes) of the storage of every array within ``value``: tensors, NumPy arrays, and what holds them."""
    yield from _arrays_of(value, set())


def _arrays_of(value: Any, seen: set[int]) -> Iterator[tuple[int, int]]:
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            yield storage.data_ptr(), storage.nbytes()
        return
    if isinstance(value, np.ndarray):
        base: Any = value
        while isinstance(base.base, np.ndarray):
            base = base.base
        address = base.__array_interface__["data"][0]
        if address not in seen:
            seen.add(address)
            yield address, base.nbytes
        return
    if id(value) in seen:
        return
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (tuple, list)):
        parts = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, Keeps):
        parts = [getattr(value, name, None) for name in _names_of(type(value))]
    if parts:
        seen.add(id(value))
        for part in parts:
            yield from _arrays_of(part, seen)


def _names_of(kind: type) -> list[str]:
    """The attributes of a structure that may hold arrays."""
    slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
    return [name for name in slots if name not in ("__weakref__", "calls", "facts", "plans")]


__all__ = ["Derived", "Keeps", "arrays_of"]
