"""What the compiler and the planner, which know nothing of torch, call its types."""

from __future__ import annotations

import torch

from ..compiler.language.types import ACCUMULATOR

type_name = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)
}.__getitem__
"""The compiler's name of a torch type."""

DTYPES = {type_name(dtype): dtype for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)}
"""The floating types that kernels take, by name."""

_ACCUMULATORS = {dtype: getattr(torch, ACCUMULATOR[name]) for name, dtype in DTYPES.items()}


def accumulator_of(dtype: torch.dtype) -> torch.dtype:
    """The floating type that values of a type are added up in, float32 for those that no kernel takes."""
    return _ACCUMULATORS.get(dtype, torch.float32)


def check_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """A floating type that kernels take. Raises ValueError that names them."""
    found = DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise ValueError(f"dtype {dtype!r} is none that kernels take: choose from {', '.join(DTYPES)}")
    return found
