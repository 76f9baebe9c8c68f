"""Which products of PyTorch are ours: of half types on a CPU, where PyTorch has no instruction for them."""

from __future__ import annotations

import torch
from torch import Tensor, is_autocast_enabled
from torch.compiler import is_dynamo_compiling

from ...compiler.cache.bounded import kept
from ...ops.grouped.half_products import half_product
from ..core.refusal import PASS, Refusal
from ..lazy import LINEAR, mapped
from ..scopes import current, transformed
from .random import PLAIN

LEAST = 1 << 14
"""Multiply-adds below which an autograd function in Python costs more than the product."""
HALF = (torch.bfloat16, torch.float16)


@kept
def torch_has_products(dtype: torch.dtype) -> bool:
    """Whether PyTorch's library multiplies a half type by instructions for it; otherwise it is a loop of PyTorch's."""
    asked = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}[dtype]
    return not torch.backends.mkldnn.is_available() or bool(getattr(torch.ops.mkldnn, asked)())


def linear_passes(input, weight, bias) -> bool:
    """Whether a product is not in half types, and nobody follows what a layer does."""
    return (
        type(input) is Tensor and input.dtype is torch.float32 and not is_autocast_enabled("cpu") and current() is None
    )


def linear(input, weight, bias=None):
    """In the place of ``F.linear``."""
    if isinstance(found := _multiplied_in(input, weight, bias), Refusal):
        return found
    if (waits := mapped(LINEAR, input, weight, bias)) is not None:
        return waits, None
    if weight.dim() != 2 or not input.dim() or input.shape[-1] != weight.shape[1]:
        return PASS
    if bias is not None and bias.shape != weight.shape[:1]:
        return PASS
    x, w, b = (None if each is None else each.to(found) for each in (input, weight, bias))
    out = half_product(None, (x.reshape(-1, x.shape[-1]), w.t(), b))
    return out.view(*input.shape[:-1], weight.shape[0]), "linear"


def matmul(input, other, *, out=None):
    """In the place of ``torch.matmul`` and ``torch.mm``, of two matrices."""
    if out is not None:
        return PASS
    if isinstance(found := _multiplied_in(input, other), Refusal):
        return found
    if (waits := mapped(torch.matmul, input, other)) is not None:
        return waits, None
    if not input.dim() == other.dim() == 2 or input.shape[1] != other.shape[0]:
        return PASS
    return half_product(None, (input.to(found), other.to(found), None)), "matmul"


def _multiplied_in(x: Tensor, w: Tensor, bias: Tensor | None = None) -> torch.dtype | Refusal:
    """The half type in which a product is ours."""
    if type(x) not in PLAIN or type(w) not in PLAIN or not (bias is None or type(bias) in PLAIN):
        return PASS  # what overrides it is asked first, and comes by here again
    cast = is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if cast else x.dtype
    if dtype not in HALF or is_dynamo_compiling() or x.numel() * w.shape[0] < LEAST or torch_has_products(dtype):
        return PASS
    operands = (x, w) if bias is None else (x, w, bias)
    if cast and any(not y.is_floating_point() or y.dtype is torch.float64 for y in operands):
        return PASS  # autocast leaves them as they are
    if not all(y.is_cpu and y.layout is torch.strided and (cast or y.dtype is dtype) for y in operands):
        return PASS
    return transformed() or dtype
