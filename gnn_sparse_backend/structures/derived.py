"""Facts that a structure computes once and keeps: each a function, or a small class."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from ..compiler.cache.bounded import make_room
from ..frozen import dataclass

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

MOST_FACTS = 512
"""Facts that a structure keeps: with more widths than that the older half is derived again."""


_transforms, _recorded = torch._C._are_functorch_transforms_active, torch._C._is_tracing


def untransformed(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The result of a function that neither a transform of ``torch.func`` nor ``torch.jit.trace`` sees: of what
    outlives them. The latter would have tensors for sizes.
    """
    if not (_transforms() or _recorded()):
        return function(*args, **kwargs)
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    recording = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        with temporarily_clear_interpreter_stack():
            return function(*args, **kwargs)
    finally:
        torch._C._set_tracing_state(recording)


class Derived(ABC, Generic[T]):
    """A fact as a class, where it is more than a function (`fact`): not all of its fields tell it apart, or somebody
    asks whether it is kept. A frozen dataclass; a class without fields has one object.
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


def fact(function: F) -> F:
    """Decorator: a function of a structure, and of what tells its values apart, which each structure computes once and
    keeps.

        @fact
        def row_parts(graph, longest: int) -> tuple[Rows, ...]: ...

        row_parts(graph, 512)

    Threads that race may both compute it; all of them get the first. It is kept by its name, which tells it apart in
    ``gsb.memory``: ``RowParts(longest=512)``. What it returns must not hold the structure.
    """
    which = list(inspect.signature(function).parameters.values())[1:]
    name = "".join(word.capitalize() for word in function.__name__.split("_"))
    fields = {each.name: each.default for each in which if each.default is not each.empty}
    about = {"__annotations__": {each.name: Any for each in which}, "__module__": function.__module__}
    # without fields equal by identity: some are asked for at every call
    kind: Any = dataclass(frozen=True, eq=bool(which))(type(name, (), fields | about))
    only = None if which else kind()

    @functools.wraps(function)
    def kept(structure: Any, *fields: Any, **named: Any) -> Any:
        key = kind(*fields, **named) if only is None else only
        value = structure.facts.get(key)
        if value is None:
            if _transforms() or _recorded():
                value = untransformed(function, structure, *fields, **named)
            else:
                value = function(structure, *fields, **named)
            make_room(structure.facts, MOST_FACTS)
            value = structure.facts.setdefault(key, value)
        return value

    return kept  # type: ignore[return-value]


def fact_of_arrays(function: F) -> F:
    """Decorator: a `fact` that reads rows and columns alone, in which a symmetric graph and its transpose are one. The
    function is given what keeps these (`Graph.of_arrays`).
    """
    kept = fact(function)

    @functools.wraps(function)
    def shared(structure: Any, *fields: Any, **named: Any) -> Any:
        return kept(getattr(structure, "of_arrays", structure), *fields, **named)

    return shared  # type: ignore[return-value]


class Keeps:
    """A structure with ``facts``: what it has computed of itself."""

    __slots__ = ()

    facts: dict[Any, Any]

    def derived(self, fact: Derived[T]) -> T:
        """Return the value of a class-based fact, computed once."""
        value = self.facts.get(fact)
        if value is None:
            value = untransformed(fact.compute, self) if _transforms() or _recorded() else fact.compute(self)
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
                kept = getattr(keeper.it, name, {})
                for value in list(kept.values()):  # which may refer to one another, as a matrix and its transpose
                    getattr(value, "facts", {}).clear()
                kept.clear()


class Keeper(NamedTuple):
    """What keeps facts.

    of: what of the structure it is, in words. it: has ``facts``, and may have ``calls`` and ``plans``. arrays: its own.
    derived: whether ``release`` frees these too.
    """

    of: str
    it: Any
    arrays: Any = ()
    derived: bool = False
