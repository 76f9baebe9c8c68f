"""What tests of the library ask for: types and devices, and tensors of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

dtypes = [torch.half, torch.bfloat16, torch.float, torch.double, torch.int, torch.long]
grad_dtypes = [torch.half, torch.float, torch.double]
floating_dtypes = [*grad_dtypes, torch.bfloat16]
devices = [torch.device("cpu"), *([torch.device("cuda:0")] if torch.cuda.is_available() else [])]


def tensor(x: Any, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """A tensor of numbers in lists; None of None."""
    return None if x is None else torch.tensor(x, dtype=dtype, device=device)
