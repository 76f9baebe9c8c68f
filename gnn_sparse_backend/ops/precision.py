"""What PyTorch allows of products on Tensor Cores."""
from __future__ import annotations

import torch


def on_tensor_cores(dtype: torch.dtype) -> bool:
    """Whether numbers of a type may be cut to what Tensor Cores take of them: ten bits of a float32's fraction (tf32)."""
    return dtype is not torch.float32 or torch.get_float32_matmul_precision() != "highest"


__all__ = ["on_tensor_cores"]
