"""What a layer computes, where chunks of rows can: functions of ``ops.chunked`` with all that they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ...ops.chunked.slices import needs_chunks
from ...structures.checks import FLOATING
from ..scopes import transformed

Form: TypeAlias = Callable[[torch.dtype | None], Tensor]
"""The layer's result. Given the type that it keeps its input in; None is that of the input."""

_KEPT = FLOATING & {torch.float32, torch.float64}


def is_large(x: Any, *widths: int) -> bool:
    """Whether rows of features are more than a chunk in the widest form that a layer has of them, and such as the
    functions take.
    """
    if type(x) is not Tensor or x.dim() != 2 or x.dtype not in _KEPT or not x.is_cpu or transformed() is not None:
        return False
    return x.layout is torch.strided and needs_chunks(x.shape[0], max(widths), x.dtype) and not autocast()


def autocast() -> bool:
    """Whether products have another type than their operands."""
    return torch.is_autocast_enabled("cpu")
