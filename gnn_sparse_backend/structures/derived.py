"""Facts that a structure computes once and keeps: each a small class."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

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

    def keepers(self) -> Iterator[Keeper]:
        """All that belongs to it and keeps facts."""
        yield Keeper(type(self).__name__.lower(), self)

    def release(self) -> None:
        """Free all that was derived, which is derived again where it is needed. A call that is under way keeps what it
        uses, and so does a gradient that is still to come what it was given.
        """
        for keeper in list(self.keepers()):
            for name in ("facts", "calls", "plans"):
                getattr(keeper.it, name, {}).clear()


class Keeper(NamedTuple):
    """What keeps facts.

    of: what of the structure it is, in words. it: has ``facts``, and may have ``calls`` and ``plans``. arrays: its own.
    derived: whether ``release`` frees these too.
    """

    of: str
    it: Any
    arrays: Any = ()
    derived: bool = False
