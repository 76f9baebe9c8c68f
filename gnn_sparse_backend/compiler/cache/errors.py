"""What the kernel caches raise and what they warn about."""

from __future__ import annotations

import warnings


class KernelCacheWarning(UserWarning):
    """The disk cache could not be used as intended; the kernel asked for is right nevertheless.

    Given for an entry that was damaged or foreign and has been rebuilt, for a folder that cannot be written, and
    for a lock that another process kept too long.
    """


class UnsafeCacheError(RuntimeError):
    """The cache root can be written by somebody else, so loading a shared object from it could run their code."""


class KernelBuildError(RuntimeError):
    """A build callback broke its contract: it left no library, or one without the promised function."""


class UnloadableError(KernelBuildError):
    """A library cannot be loaded into this process."""


class BadEntry(ValueError):
    """One folder of the disk cache is not what its key promises; the text says why."""


def warn_unsafe(error: UnsafeCacheError) -> None:
    """Say that a cache is not used, and why."""
    warnings.warn(
        f"{error}. Until then kernels stay in memory, and each process compiles its own",
        KernelCacheWarning,
        stacklevel=3,
    )
