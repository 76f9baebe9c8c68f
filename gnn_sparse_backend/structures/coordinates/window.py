"""``Window``: the sites around an output of a convolution that its kernel covers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def per_axis(name: str, value: object, dim: int, least: int = 1) -> tuple[int, ...]:
    """``value``, an int or one for each of ``dim`` axes, as a tuple. Raises TypeError, ValueError that quote it."""
    given = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * dim
    if any(isinstance(x, (bool, np.bool_)) or not isinstance(x, (int, np.integer)) for x in given):
        raise TypeError(f"{name} must be an int, or one for each of {dim} axes, got {value!r}")
    if len(given) != dim:
        raise ValueError(f"{name} must have an entry for each of {dim} axes, got {value!r}")
    if any(x < least for x in given):
        raise ValueError(f"{name} must be at least {least}, got {value!r}")
    return tuple(int(x) for x in given)


@dataclass(frozen=True)
class Window:
    """``fine = stride * coarse - before + dilation * k`` for every offset k of the kernel, axis by axis.

    Offsets are numbered with the last axis fastest. A convolution has its inputs at the fine sites and its outputs at
    the coarse ones, and a transposed convolution the reverse.

    Attributes:
        kernel, stride, dilation: for each axis.
        before: how far the kernel begins before the site, the padding of a dense convolution.
        after: the padding at the other end, which says where a bounded grid of outputs ends.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, dim: int, kernel_size, stride=1, dilation=1, padding=None) -> Window:
        """Make the window from a layer's arguments, each an int or one for each axis. padding: None for a kernel whose
        middle, of an even one the last element before the middle, is at the site.
        """
        kernel = per_axis("kernel_size", kernel_size, dim)
        stride, dilation = per_axis("stride", stride, dim), per_axis("dilation", dilation, dim)
        if padding is None:
            before = tuple(d * ((k - 1) // 2) for k, d in zip(kernel, dilation))
            after = tuple(d * (k // 2) for k, d in zip(kernel, dilation))
        else:
            before = after = per_axis("padding", padding, dim, 0)
        return cls(kernel, stride, dilation, before, after)

    @property
    def dim(self) -> int:
        return len(self.kernel)

    @property
    def num_offsets(self) -> int:
        """K, the volume of the kernel."""
        return math.prod(self.kernel)

    @property
    def reach(self) -> tuple[int, ...]:
        """From the first to the last site that the kernel covers, along each axis."""
        return tuple(d * (k - 1) for k, d in zip(self.kernel, self.dilation))

    @property
    def keeps_sites(self) -> bool:
        """Whether a site reaches itself alone."""
        return self.num_offsets == 1 and set(self.stride) == {1} and not any(self.before)

    @property
    def parts_sites(self) -> bool:
        """Whether windows of neighbouring outputs lie side by side, so that each site is in one."""
        return self.kernel == self.stride and set(self.dilation) == {1}

    @property
    def symmetric(self) -> bool:
        """Whether offset K - 1 - k is the opposite of offset k."""
        return set(self.stride) == {1} and all(2 * b == reach for b, reach in zip(self.before, self.reach))

    def coarse_range(self, axis: int, low: int, high: int) -> tuple[int, int]:
        """The first and the last coarse coordinate of which the kernel covers one from ``low`` to ``high``."""
        b, s = self.before[axis], self.stride[axis]
        return -((self.reach[axis] - b - low) // s), (high + b) // s

    def fine_range(self, axis: int, low: int, high: int) -> tuple[int, int]:
        """The first and the last fine coordinate that the kernel covers from those from ``low`` to ``high``."""
        b, s = self.before[axis], self.stride[axis]
        return low * s - b, high * s - b + self.reach[axis]

    def coarse_sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Sizes of the outputs of a dense convolution of inputs of these sizes."""
        return tuple(
            max((size + b + a - reach - 1) // s + 1, 0)
            for size, b, a, reach, s in zip(sizes, self.before, self.after, self.reach, self.stride)
        )

    def fine_sizes(self, sizes: Sequence[int], centred: bool) -> tuple[int, ...]:
        """Sizes of the outputs of a dense transposed convolution of inputs of these sizes; stride times these sizes
        where the kernel is ``centred``.
        """
        if centred:
            return tuple(size * s for size, s in zip(sizes, self.stride))
        return tuple(
            max((size - 1) * s - b - a + reach + 1, 0)
            for size, b, a, reach, s in zip(sizes, self.before, self.after, self.reach, self.stride)
        )
