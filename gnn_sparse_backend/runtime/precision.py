"""What PyTorch allows of products on Tensor Cores."""

from __future__ import annotations

from collections.abc import Callable

import torch


def on_tensor_cores(dtype: torch.dtype) -> bool:
    """Whether numbers of a type may be cut to what Tensor Cores take of them: ten bits of a float32's fraction (tf32).

    For float32 that is what PyTorch's own products go by: ``torch.backends.cuda.matmul.fp32_precision``, which the
    older ``torch.set_float32_matmul_precision`` and ``allow_tf32`` set as well, and which takes over what was said of
    all operators. PyTorch before 2.9 has the older settings alone; later ones refuse to read them where the new one
    disagrees.
    """
    return dtype is not torch.float32 or _tf32()


def _reader() -> Callable[[], bool]:
    matmul = torch.backends.cuda.matmul
    if not hasattr(matmul, "fp32_precision"):
        return lambda: torch.get_float32_matmul_precision() != "highest"
    getter = getattr(torch._C, "_get_fp32_precision_getter", None)  # what the attribute reads, in a tenth of its time
    return (lambda: matmul.fp32_precision == "tf32") if getter is None else (lambda: getter("cuda", "matmul") == "tf32")


_tf32 = _reader()
