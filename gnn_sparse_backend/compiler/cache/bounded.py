"""What is kept by shape and type: bounded, with statistics."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ...frozen import dataclass

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

MOST = 1024
"""Entries of a cache, where nothing else is said. A process that meets more shapes makes the oldest again."""


KERNELS = "kernels"
"""Name of the caches of kernels by their keys."""


class KernelCache(dict[K, V]):
    """What was made for a shape and type, so that the next call like it finds it: at most ``most`` entries.

    A dict whose ``get`` costs what a dict's does. When it is full, the older half of the entries goes: what is asked
    for again is made again, from the kernels on disk where it is a kernel.

    name: what is kept, in words. `statistics` has those that `shared` gave.
    """

    def __init__(self, name: str, most: int = MOST) -> None:
        super().__init__()
        self.name, self.most, self.made, self.dropped = name, most, 0, 0

    __hash__ = object.__hash__  # type: ignore[assignment]  # caches are told apart by identity

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def keep(self, key: K, value: V) -> V:
        """Keep ``value``, and give it back."""
        self.dropped += make_room(self, self.most)
        self.made += 1
        self[key] = value
        return value

    def found(self, key: K, make: Callable[[], V]) -> V:
        """The value under ``key``, made where there is none. Threads that race may both make it."""
        value = self.get(key)
        return self.keep(key, make()) if value is None else value


def make_room(entries: dict[Any, Any], most: int = MOST) -> int:
    """Drop the older half of the entries if there are ``most`` or more. Returns how many were dropped."""
    dropped = 0
    if len(entries) >= most:
        for old in list(entries)[: (most + 1) // 2]:
            dropped += entries.pop(old, None) is not None
    return dropped


def shared(name: str, most: int = MOST) -> KernelCache[Any, Any]:
    """A cache that `statistics` counts, while it lives: not one of a structure, which comes and goes."""
    cache: KernelCache[Any, Any] = KernelCache(name, most)
    _caches.add(cache)
    return cache


def keeping(most: int) -> Callable[[F], F]:
    """Decorator: ``functools.lru_cache`` of at most ``most`` entries, which `statistics` counts."""

    def keep(function: F) -> F:
        cached = functools.lru_cache(maxsize=most)(function)
        _functions.append(cached)
        return cached  # type: ignore[return-value]

    return keep


def kept(function: F) -> F:
    """Memoise a function of shapes and types, keeping at most `MOST` results."""
    return keeping(MOST)(function)


def kept_within(era: Any) -> Callable[[F], F]:
    """Memoise as `kept` does, but results of one ``era.generation`` alone: after it has grown they are made anew.

    A thread that began before keeps its results where nobody looks for them any more.
    """

    def keep(function: F) -> F:
        held = era.generation, functools.lru_cache(MOST)(function)

        @functools.wraps(function)
        def found(*arguments: Any, **named: Any) -> Any:
            nonlocal held
            generation, cached = held
            if generation != era.generation:
                generation, cached = held = era.generation, functools.lru_cache(MOST)(function)
            return cached(*arguments, **named)

        found.cache_info = lambda: held[1].cache_info()  # type: ignore[attr-defined]
        found.cache_clear = lambda: held[1].cache_clear()  # type: ignore[attr-defined]
        _functions.append(found)
        return found  # type: ignore[return-value]

    return keep


def forget() -> None:
    """Empty every cache that `statistics` counts but those of kernels themselves: what was chosen for a shape and type
    is chosen anew.
    """
    for cache in list(_caches):
        if cache.name != KERNELS:
            cache.clear()
    for function in list(_functions):
        function.cache_clear()


@dataclass(frozen=True)
class CacheStatistics:
    """What one cache of the process has done.

    entries: now. most: that there may be. made: entries since the process began. dropped: of these, to make room.
    """

    name: str
    entries: int
    most: int
    made: int
    dropped: int


def statistics() -> tuple[CacheStatistics, ...]:
    """What this process keeps by shape and type, by name: every cache of the modules that are imported. What a
    structure keeps is not in it (``gsb.memory``).

    Two caches of one name, as the kernels of two stores have, are one row.
    """
    found: dict[str, CacheStatistics] = {}
    for each in _each():
        before = found.get(each.name, CacheStatistics(each.name, 0, 0, 0, 0))
        found[each.name] = CacheStatistics(
            each.name,
            before.entries + each.entries,
            before.most + each.most,
            before.made + each.made,
            before.dropped + each.dropped,
        )
    return tuple(found[name] for name in sorted(found))


def _each() -> Iterable[CacheStatistics]:
    for cache in list(_caches):
        yield CacheStatistics(cache.name, len(cache), cache.most, cache.made, cache.dropped)
    for function in list(_functions):
        info = function.cache_info()
        name = f"{function.__module__.removeprefix('gnn_sparse_backend.')}.{function.__qualname__}"
        yield CacheStatistics(name, info.currsize, info.maxsize, info.misses, info.misses - info.currsize)


_caches: weakref.WeakSet[KernelCache[Any, Any]] = weakref.WeakSet()
_functions: list[Any] = []
