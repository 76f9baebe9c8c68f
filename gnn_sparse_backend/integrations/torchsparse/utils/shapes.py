"""Numbers for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Axes: TypeAlias = int | Sequence[int] | Tensor
"""One for all axes, or one for each."""


def make_ntuple(x: Axes, ndim: int) -> tuple[int, ...]:
    """``x`` as a tuple of one integer for each axis. Raises TypeError, ValueError that quote it."""
    given = x.reshape(-1).tolist() if isinstance(x, Tensor) else x
    if isinstance(given, int):
        return (given,) * ndim
    try:
        made = tuple(int(each) for each in given)
    except (TypeError, ValueError):
        raise TypeError(f"expected an int, or {ndim} of them, got {x!r}") from None
    if len(made) != ndim:
        raise ValueError(f"expected an int, or {ndim} of them, got {x!r}")
    return made


def make_tensor(x: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """The numbers as a tensor."""
    return torch.tensor(x, dtype=dtype, device=device)


def make_divisible(x: int, divisor: int) -> int:
    """The smallest multiple of ``divisor`` that is not below ``x``."""
    return (x + divisor - 1) // divisor * divisor
