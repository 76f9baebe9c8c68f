"""What tensors of one network share: coordinates by stride, and how strided layers went from one to the next."""

from __future__ import annotations

from enum import Enum
from typing import Any


class TensorCacheMode(Enum):
    """Whether each tensor that is made by hand begins with caches of its own."""

    SEPARATE_TENSOR_CACHE = 0
    GLOBAL_TENSOR_CACHE = 1


class TensorCache:
    """Attributes:
    cmaps: by stride, (coords, spatial_range) in 2.1 and coords in 1.4.
    kmaps: by (stride, window), the ``Placed`` of a strided layer.
    hashmaps: always empty here, since sites keep what is found of them.
    """

    def __init__(self) -> None:
        self.cmaps: dict[Any, Any] = {}
        self.kmaps: dict[Any, Any] = {}
        self.hashmaps: dict[Any, Any] = {}


_mode = TensorCacheMode.SEPARATE_TENSOR_CACHE
_global: TensorCache | None = None


def set_tensor_cache_mode(mode: TensorCacheMode) -> None:
    """Put a mode in force. With one global cache, call ``clear_global_tensor_cache`` after each step."""
    global _mode
    if not isinstance(mode, TensorCacheMode):
        raise TypeError(f"mode must be a TensorCacheMode, got {mode!r}")
    _mode = mode


def get_tensor_cache_mode() -> TensorCacheMode:
    """The mode in force."""
    return _mode


def set_global_tensor_cache(tensor_cache: TensorCache | None) -> None:
    """Give the cache that tensors share in the global mode."""
    global _global
    _global = tensor_cache


def get_global_tensor_cache() -> TensorCache | None:
    """The cache that tensors share in the global mode."""
    return _global


def clear_global_tensor_cache() -> None:
    """Begin with a new one."""
    set_global_tensor_cache(None)


def new_cache() -> TensorCache:
    """The cache that a new tensor has."""
    if _mode is TensorCacheMode.SEPARATE_TENSOR_CACHE:
        return TensorCache()
    if _global is None:
        set_global_tensor_cache(TensorCache())
    assert _global is not None
    return _global
