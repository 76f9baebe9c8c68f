"""Where tensors may be lazy: within the call of a layer, or within a block of a user's program.

What is lazy and outlives its scope is computed when that ends, in the place of whoever holds it. So nobody finds a lazy
tensor who could tell it from another, and nobody can write to what it is made of before it is computed. Within a scope
only code of a framework runs (``trusted``), or somebody watches for writes (`rows.Watching`), or what is lazy is made
of copies.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterator
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from . import layers
from .copies import copied
from .modes import in_checkpoint


class Scope:
    """One call or block, as a context.

    Attributes:
        trusted: whether all code that runs inside is known not to write to what it is given.
        given: what the layer was called with. result: what it returned.
        site: where in a user's program it begins, if that is known.
        kind: the kind of the call (`layers.kind_of`), if any. plain: whether calls of it hand out nothing.
        alive: the lazy tensors that were made inside. consumed: whether something else was made of any that has a
            gradient. passed: those that were computed after that. kept: what was computed for several others.
        ways: long ways of gradients (`history.Way`) that were made inside.
        ended: whether it has ended.
        rows: arithmetic on features of nodes inside (`rows.Rows`), where that is worth it.
        mode: what sees the functions of PyTorch that are called inside, where somebody has to.
    """

    __slots__ = (
        "alive",
        "consumed",
        "ended",
        "given",
        "kept",
        "kind",
        "mode",
        "outer",
        "passed",
        "plain",
        "result",
        "rows",
        "shown",
        "site",
        "trusted",
        "ways",
    )

    def __init__(self, trusted: bool, given: Any = (), kind: Hashable | None = None):
        self.trusted, self.given, self.kind = trusted, given, kind
        self.plain, self.consumed = layers.keeps_all(kind, in_checkpoint()), False
        self.alive: list[weakref.ref] = []
        self.ways: list[Any] = []
        self.passed: list[weakref.ref] = []
        self.kept: list[Tensor] = []
        self.ended = False
        self.mode = self.result = self.rows = self.shown = None
        self.outer: Scope | None = None
        self.site: Hashable | None = None

    def __enter__(self) -> Scope:
        self.outer, _now.scope = _now.scope, self
        if self.site is None and self.outer is not None:
            self.site = self.outer.site
        if self.mode is not None:
            self.mode.__enter__()
        return self

    def __exit__(self, kind, error, trace) -> None:
        if self.mode is not None:
            self.mode.__exit__(kind, error, trace)
        try:
            if kind is None:
                self._leave()
        finally:
            _now.scope = self.outer
            self._end()

    def _leave(self) -> None:
        handed_out = self._settle_held()
        self.kept.clear()
        if self.consumed and self.kind is not None:
            layers.note(self.kind, handed_out or any(each() is not None for each in self.passed))

    def _settle_held(self) -> bool:
        """Compute what is still held; whether that is more than results, where nothing else is recorded."""
        held = [lazy for each in self.alive if (lazy := each()) is not None]
        for lazy in reversed(held):
            if type(lazy) is not Tensor:
                lazy._settle("it outlives its layer")
        results = tree_leaves(self.result) if self.plain and held else ()
        return self.plain and not all(any(lazy is each for each in (*results, *self.kept)) for lazy in held)

    def _end(self) -> None:
        self.ended = True
        self.kept.clear()
        ways, self.ways = self.ways, []
        for each in ways:
            each.pin(self.lasting)
        self.given = ()  # it lives as long as what is lazy
        self.mode = self.result = self.rows = self.shown = None

    def settle(self, reason: str, written: list[Tensor] | None = None) -> None:
        """Compute what is lazy and still held, the later ones first, with which those go that only they held.

        written: tensors that are about to be written to: what is not made of their memory may stay lazy.
        """
        memories = None if written is None else set(map(_memory, written))
        alive, self.alive = self.alive, []
        while alive:
            each = alive.pop()
            lazy = each()
            if lazy is None:
                continue
            self.alive.append(each)
            if type(lazy) is Tensor or (memories is not None and memories.isdisjoint(map(_memory, lazy._recipe.read))):
                continue
            lazy._settle(reason)

    def lazy(self) -> Iterator[Any]:
        """The tensors that were made inside and are still lazy."""
        for each in self.alive:
            lazy = each()
            if lazy is not None and type(lazy) is not Tensor:
                yield lazy

    def lasting(self, x: Tensor) -> Tensor:
        """A tensor, or a copy of one that somebody may write to before a gradient reads it."""
        if not self.trusted:
            return copied(x)
        if self.shown is None:
            self.shown = {_memory(each) for each in tree_leaves(self.given) if isinstance(each, Tensor)}
        return x.clone() if _memory(x) in self.shown else x


class _OfThread(threading.local):
    scope: Scope | None = None


_now = _OfThread()


def note(way: Any) -> None:
    """A long way of gradients was made."""
    if _now.scope is not None:
        _now.scope.consumed = True
        _now.scope.ways.append(way)


def keep(x: Tensor) -> Tensor:
    """What others will ask for again before the scope ends."""
    if _now.scope is not None:
        _now.scope.kept.append(x)
    return x


def lasting(x: Tensor) -> Tensor:
    """What a gradient reads again of a message: the tensor, or a copy of one that somebody may write to before."""
    scope = _now.scope
    return x if scope is None else scope.lasting(x)


def current() -> Scope | None:
    """The scope that this thread is in, if any."""
    return _now.scope


def shares_sums() -> bool:
    """Whether the program that is running was seen to read a function of a sum in two messages."""
    return _now.scope is not None and layers.shares_sums(_now.scope.site)


def note_shared() -> None:
    """The program that is running has read a function of a sum in a second message."""
    if _now.scope is not None:
        layers.note_shared(_now.scope.site)


def _memory(x: Tensor) -> int | None:
    """What tells the memory of a tensor; None of one that has none, or stands for others as transformations do."""
    try:
        return x.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None
