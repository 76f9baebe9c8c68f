"""Products of matrices in half types on a CPU that has no instruction for them: in float32, a part at a time.

PyTorch multiplies those by a loop of its own, a hundred times slower than it multiplies float32. Parts of operands are
converted while they are near, so that nothing of an operand's size is stored in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.operator import Operator

PART = 2048
"""Rows of a part: with some hundred features they fit the second-level cache."""


def _run(structure: None, operands, attributes) -> Tensor:
    a, b, bias = (None if x is None else x.detach() for x in operands)
    (rows, inner), columns = a.shape, b.shape[1]
    with torch.autocast("cpu", enabled=False):
        if rows >= inner:
            out, wide = a.new_empty(rows, columns), b.float()
            start = None if bias is None else bias.float()
            for part, result in zip(a.split(PART), out.split(PART)):
                part = part.float()
                result.copy_(part @ wide if start is None else torch.addmm(start, part, wide))
            return out
        total = torch.zeros(rows, columns) if bias is None else bias.float().repeat(rows, 1)
        for left, right in zip(a.split(PART, 1), b.split(PART)):
            total.addmm_(left.float(), right.float())
        return total.to(a.dtype)


def _gradients(structure, attributes, saved, memo, needed, grad: Tensor):
    a, b, bias = saved
    return [
        half_product(None, (grad, b.t(), None)) if needed[0] else None,
        half_product(None, (a.t(), grad, None)) if needed[1] else None,
        grad.sum(0, dtype=torch.float32).to(bias.dtype) if needed[2] else None,
    ]


def _check(structure: None, operands, attributes):
    a, b, bias = operands
    fits = a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0] and (bias is None or bias.shape == b.shape[1:])
    if not fits or any(x is not None and (x.dtype is not a.dtype or not x.is_cpu) for x in operands):
        found = ", ".join("none" if x is None else f"{tuple(x.shape)} of {x.dtype} on {x.device}" for x in operands)
        raise ValueError(f"half_product: (M, K), (K, N) and no or an (N,) bias of one type on the CPU, got {found}")
    return operands


half_product = Operator(
    "half_product",
    _run,
    _gradients,
    operands="Tensor a, Tensor b, Tensor? bias",
    like=lambda structure, operands, attributes, transposed: operands[0].new_empty(
        operands[0].shape[0], operands[1].shape[1]
    ),
    check=_check,
)
"""(None, (a, b, bias)) to a @ b + bias, rounded once. a: (M, K), b: (K, N), bias: (N,) or None, in any strides."""
