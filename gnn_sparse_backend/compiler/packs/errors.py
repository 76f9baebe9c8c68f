"""What packs of kernels raise."""

from __future__ import annotations


class PackError(ValueError):
    """A pack cannot be written or used; the text says why, and what to do."""


class MissingKernelError(RuntimeError):
    """A kernel is in no pack and no cache, and nothing that compiles is installed."""
