"""Functions of the features of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...tensor import SparseTensor, check_tensor

__all__ = ["fapply"]


def fapply(input: SparseTensor, fn: Callable[..., Tensor], *args: Any, **kwargs: Any) -> SparseTensor:
    """``fn(input.feats, *args, **kwargs)`` at the same sites."""
    return check_tensor("fapply", input).like(fn(input.feats, *args, **kwargs))
