"""What is kept by shape and type: bounded, with statistics."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

MOST = 1024
"""Entries of a cache, where nothing else is said. A process that meets more shapes makes the oldest again."""


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
    """Drop the older half of ``most`` entries, if there are so many. Returns how many went."""
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


def kept(function: F) -> F:
    """``functools.lru_cache`` of `MOST` entries that `statistics` knows: what a function of shapes and types gave."""
    cached = functools.lru_cache(maxsize=MOST)(function)
    _functions.append(cached)
    return cached  # type: ignore[return-value]


@dataclass(frozen=True)
class CacheStatistics:
    """entries: now, of all caches of this name together. made, dropped: since the process began."""

    name: str
    entries: int
    made: int
    dropped: int


def statistics() -> tuple[CacheStatistics, ...]:
    """What is kept by shape and type in this process, by name."""
    found: dict[str, list[int]] = {}
    for name, *numbers in _numbers():
        of_name = found.setdefault(name, [0, 0, 0])
        for at, number in enumerate(numbers):
            of_name[at] += number
    return tuple(CacheStatistics(name, *numbers) for name, numbers in sorted(found.items()))


def _numbers() -> Iterable[tuple[str, int, int, int]]:
    for cache in list(_caches):
        yield cache.name, len(cache), cache.made, cache.dropped
    for function in _functions:
        info = function.cache_info()
        name = f"{function.__module__.removeprefix('gnn_sparse_backend.')}.{function.__qualname__}"
        yield name, info.currsize, info.misses, info.misses - info.currsize


_caches: weakref.WeakSet[KernelCache[Any, Any]] = weakref.WeakSet()
_functions: list[Any] = []

__all__ = ["MOST", "CacheStatistics", "KernelCache", "kept", "make_room", "shared", "statistics"]
