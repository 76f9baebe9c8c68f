"""What packs of kernels raise, and what is raised and said where a kernel can be had from nowhere."""

from __future__ import annotations


class PackError(ValueError):
    """A pack cannot be written or used; the text says why, and what to do."""


class NoKernelError(RuntimeError):
    """This machine cannot make or load a kernel now, for want of room, of permission or of a compiler: `gsb doctor`
    looks at all three.

    Frameworks run by themselves then, and gradients are computed by PyTorch's own functions.
    """


class MissingKernelError(NoKernelError):
    """A kernel is in no pack and no cache, and nothing that compiles is installed."""


class NoKernelWarning(UserWarning):
    """A kernel can be had from nowhere, and somebody else computes in its place."""
