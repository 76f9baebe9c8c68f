"""Kernels and their caches: content keys, memory, disk."""

from .bounded import CacheStatistics, statistics
from .default import default_store, get_kernel, stats
from .disk import DiskCache, cache_dir
from .errors import KernelBuildError, KernelCacheWarning, UnsafeCacheError
from .kernel import Kernel
from .key import KernelKey
from .store import KernelStore, StoreStats

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
