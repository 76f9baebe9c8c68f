"""What the compiler and the planner, which know nothing of torch, call its types."""

from __future__ import annotations

import torch

type_name = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)
}.__getitem__
"""The compiler's name of a torch type."""

__all__ = ["type_name"]
