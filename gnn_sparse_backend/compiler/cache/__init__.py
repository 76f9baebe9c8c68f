"""Kernels and their caches: content keys, memory, disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...deferred import names_of

if TYPE_CHECKING:
    from .bounded import CacheStatistics, statistics
    from .default import default_store, get_kernel, stats
    from .disk import DiskCache, cache_dir
    from .errors import KernelBuildError, KernelCacheWarning, UnsafeCacheError
    from .kernel import Kernel
    from .key import KernelKey
    from .store import KernelStore, StoreStats
else:
    __getattr__, __dir__ = names_of(
        __name__,
        {
            ".bounded": "CacheStatistics statistics",
            ".default": "default_store get_kernel stats",
            ".disk": "DiskCache cache_dir",
            ".errors": "KernelBuildError KernelCacheWarning UnsafeCacheError",
            ".kernel": "Kernel",
            ".key": "KernelKey",
            ".store": "KernelStore StoreStats",
        },
    )

__all__ = [
    "CacheStatistics",
    "DiskCache",
    "Kernel",
    "KernelBuildError",
    "KernelCacheWarning",
    "KernelKey",
    "KernelStore",
    "StoreStats",
    "UnsafeCacheError",
    "cache_dir",
    "default_store",
    "get_kernel",
    "statistics",
    "stats",
]
