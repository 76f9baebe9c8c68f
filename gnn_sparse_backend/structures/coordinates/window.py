"""``Window``: the sites around an output of a convolution that its kernel covers, in a box, a cross, or anywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...frozen import dataclass
from ..checks import as_int


def per_axis(name: str, value: object, dim: int, least: int = 1) -> tuple[int, ...]:
    """``value``, an int or one for each of ``dim`` axes, as a tuple. Raises TypeError, ValueError that quote it."""
    given = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * dim
    sizes = tuple(size for size in map(as_int, given) if size is not None)
    if len(sizes) != len(given):
        raise TypeError(f"{name} must be an int, or one for each of {dim} axes, got {value!r}")
    if len(given) != dim:
        raise ValueError(f"{name} must have an entry for each of {dim} axes, got {value!r}")
    if any(size < least for size in sizes):
        raise ValueError(f"{name} must be at least {least}, got {value!r}")
    return sizes


@dataclass(frozen=True)
class Cross:
    """A kernel that is a cross (Choy et al., 2019): the offsets of a box that differ from its middle along one axis at
    most.

        nn.SubMConv(16, 32, nn.Cross(3))  # 7 offsets in three dimensions

    Args:
        kernel_size: of the box, an int or one for each axis. Offsets are those of the box, in its row-major order.
    """

    kernel_size: int | tuple[int, ...]

    def __init__(self, kernel_size: int | Sequence[int]) -> None:
        value = kernel_size if isinstance(kernel_size, (int, np.integer)) else tuple(kernel_size)
        object.__setattr__(self, "kernel_size", value)

    def __repr__(self) -> str:
        return f"Cross({self.kernel_size})"


@dataclass(frozen=True)
class Offsets:
    """A kernel of any offsets from its site: output o of a layer of stride s reads the sites ``s * o + dilation *
    offset``.

        nn.SubMConv(16, 32, nn.Offsets([[0, 0, 0], [0, 0, 1], [0, 0, -3]]))

    Args:
        offsets: (K, D) integers, a tensor or lists, none twice. Weights are in their order.

    Raises TypeError, ValueError: they are not as above.
    """

    offsets: tuple[tuple[int, ...], ...]

    def __init__(self, offsets: torch.Tensor | Sequence[Sequence[int]]) -> None:
        found = torch.as_tensor(offsets)
        if found.dim() != 2 or not found.numel() or found.dtype.is_floating_point or found.dtype is torch.bool:
            raise TypeError(
                f"Offsets takes (K, D) integers, an offset a row, got {tuple(found.shape)} of {found.dtype}"
            )
        rows = tuple(map(tuple, found.tolist()))
        again = next((row for at, row in enumerate(rows) if row in rows[:at]), None)
        if again is not None:
            raise ValueError(f"Offsets takes each offset once, got {again} twice")
        object.__setattr__(self, "offsets", rows)

    def __repr__(self) -> str:
        return f"Offsets({[list(row) for row in self.offsets]})"


@dataclass(frozen=True)
class Window:
    """``fine = stride * coarse - before + dilation * k`` for every offset k of the kernel, axis by axis.

    Offsets of a box are numbered with the last axis fastest, others as they are listed. A convolution has its inputs at
    the fine sites and its outputs at the coarse ones, and a transposed convolution the reverse.

    Attributes:
        kernel, stride, dilation: for each axis. kernel: sizes of the box that holds the offsets.
        before: how far the kernel begins before the site, the padding of a dense convolution.
        after: the padding at the other end, which says where a bounded grid of outputs ends.
        cells: the offsets k, where they are not all of the box.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    cells: tuple[tuple[int, ...], ...] | None = None

    @classmethod
    def of(cls, dim: int, kernel_size: Any, stride: Any = 1, dilation: Any = 1, padding: Any = None) -> Window:
        """Make the window from a layer's arguments, each an int or one for each axis, the kernel also ``Cross`` or
        ``Offsets``. padding: None for a kernel whose middle, of an even one the last element before the middle, is at
        the site.
        """
        stride, dilation = per_axis("stride", stride, dim), per_axis("dilation", dilation, dim)
        if isinstance(kernel_size, Offsets):
            return cls._around(dim, kernel_size, stride, dilation, padding)
        crossed, cells = isinstance(kernel_size, Cross), None
        kernel = per_axis("kernel_size", kernel_size.kernel_size if crossed else kernel_size, dim)
        if crossed:
            box = itertools.product(*map(range, kernel))
            cells = tuple(k for k in box if sum(i != (n - 1) // 2 for i, n in zip(k, kernel)) <= 1)
        if padding is None:
            before = tuple(d * ((k - 1) // 2) for k, d in zip(kernel, dilation))
            after = tuple(d * (k // 2) for k, d in zip(kernel, dilation))
        else:
            before = after = per_axis("padding", padding, dim, 0)
        return cls(kernel, stride, dilation, before, after, cells)

    @classmethod
    def _around(cls, dim: int, kernel: Offsets, stride: tuple[int, ...], dilation: tuple[int, ...], padding) -> Window:
        """Make the window of offsets from its site."""
        if padding is not None:
            raise ValueError(f"Offsets are from the site, and have no padding; got padding {padding!r}")
        if len(kernel.offsets[0]) != dim:
            raise ValueError(f"{kernel!r} has {len(kernel.offsets[0])} axes, but the layer {dim}")
        low, high = (tuple(map(end, zip(*kernel.offsets))) for end in (min, max))
        sizes = tuple(h - lo + 1 for lo, h in zip(low, high))
        before, after = (tuple(sign * d * o for d, o in zip(dilation, end)) for sign, end in ((-1, low), (1, high)))
        cells = tuple(tuple(o - lo for o, lo in zip(offset, low)) for offset in kernel.offsets)
        return cls(sizes, stride, dilation, before, after, cells)

    @property
    def dim(self) -> int:
        return len(self.kernel)

    @property
    def num_offsets(self) -> int:
        """K, how many offsets there are."""
        return math.prod(self.kernel) if self.cells is None else len(self.cells)

    @property
    def shape(self) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
        """The sizes of the box, or the offsets in it."""
        return self.kernel if self.cells is None else self.cells

    @property
    def steps(self) -> list[tuple[int, ...]]:
        """``dilation * k`` of each offset, in their order."""
        cells = itertools.product(*map(range, self.kernel)) if self.cells is None else self.cells
        return [tuple(d * i for d, i in zip(self.dilation, k)) for k in cells]

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
        if set(self.stride) != {1} or self.num_offsets % 2 == 0:
            return False
        if self.cells is None:
            return all(2 * b == reach for b, reach in zip(self.before, self.reach))
        steps, ends = self.steps, tuple(2 * b for b in self.before)
        return all(tuple(map(sum, zip(*both))) == ends for both in zip(steps, reversed(steps)))

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
