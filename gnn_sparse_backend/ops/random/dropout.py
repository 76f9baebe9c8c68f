"""PyTorch's dropouts on a CPU, from draws that are faster: the same bits, and the same gradients.

The formulas are those of ``aten/src/ATen/native/Dropout.cpp``. A dropout draws a 0 or 1 for each element of
``torch.empty_like(x)``, as these lie in memory, or for each channel (``feature``).
"""

from __future__ import annotations

from math import isfinite

import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import _disable_current_modes

from ...compiler.cache.bounded import kept
from ..core.operator import Operator
from .chosen import chosen
from .draws import draw_bernoulli
from .masked import flat, masked, rectified

aten = torch.ops.aten  # where numbers are ``Scalar`` as they are in C++: Python's operators may round them otherwise
ONE_PASS = 1 << 16
"""Elements from which one pass is worth what an autograd function in Python costs; it also keeps a byte for each
element until the backward pass, where a product keeps a number."""
_ALPHA = 1.7580993408473766
"""Minus the limit of SELU far below 0, which is what alpha dropout puts in the place of an element."""


def dropout(x: Tensor, p: float) -> Tensor:
    """``F.dropout(x, p)``. x: of the CPU, with at least one element, of a type that kernels take. p: in (0, 1)."""
    if x.numel() < ONE_PASS:
        return dropout_by_noise(x, p, alpha=False, feature=False, inplace=False)
    return masked(None, (x, drawn_like(x, 1 - p)), (scale_of(p, x.dtype), False))


def native_dropout(x: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """``torch.native_dropout(x, p, True)``, p in [0, 1), which rounds its scale elsewhere than `dropout`."""
    drawn = drawn_like(x, 1 - p)
    return _native(None, (x, drawn), (1 / (1 - p),)), drawn.view(torch.bool)


def _native_run(structure, operands, attributes) -> Tensor:
    (x, mask), (scale,) = operands, attributes
    rounded = torch.tensor(scale, dtype=x.dtype).item()
    if x.numel() < ONE_PASS or not isfinite(rounded):  # what is dropped is then 0 times infinity
        return aten.mul_.Scalar(x.mul(mask.view(torch.bool)), scale)
    return masked.run(None, (x, mask), (rounded, False))


def _native_gradients(structure, attributes, saved, memo, needed, cotangent) -> list[Tensor | None]:
    """Gradients by a scale that is not rounded; what was dropped has none, however large its cotangent is."""
    (mask,), (scale,) = saved, attributes
    if cotangent.numel() < ONE_PASS:
        return [aten.native_dropout_backward(cotangent, mask.view(torch.bool), scale), None]
    return [masked(structure, (cotangent, mask), (scale, False)), None]


_native = Operator(
    "native_dropout",
    run=_native_run,
    gradients=_native_gradients,
    saved=lambda attributes, operands, results: (operands[1:], None),
)


def dropout_by_noise(x: Tensor, p: float, alpha: bool, feature: bool, inplace: bool) -> Tensor:
    """The other dropouts, which are a product with what was drawn, ``alpha`` with a sum behind it, by PyTorch.

    Arguments are as in `dropout`; of ``feature`` x has two dimensions at least.
    """
    like = x.detach()
    if feature:
        like = x.new_empty(()).expand(*x.shape[:2], *[1] * (x.dim() - 2))
    mask = drawn_like(like, 1 - p)
    noise = x.new_tensor([0.0, 1.0])  # each step is taken of the two numbers there are, not of all
    multiply = x.mul_ if inplace else x.mul
    if not alpha:
        return multiply(_of_two(mask, aten.div_.Scalar(noise, 1 - p)))  # a scale may be infinite
    a = 1 / ((_ALPHA * _ALPHA * p + 1) * (1 - p)) ** 0.5
    shift = aten.add_.Scalar(aten.mul_.Scalar(aten.add.Scalar(noise, -1), _ALPHA * a), _ALPHA * a * p)
    aten.mul_.Scalar(noise, a)
    if inplace or mask.shape != x.shape or x.numel() < ONE_PASS:
        scaled = multiply(_of_two(mask, noise))
    else:
        scaled = masked(None, (x, mask), (noise[1].item(), False))
    return scaled.add_(_of_two(mask, shift))


def _of_two(mask: Tensor, numbers: Tensor) -> Tensor:
    """The second number where the mask is 1, else the first."""
    if mask.numel() < ONE_PASS:
        return torch.where(mask.view(torch.bool), numbers[1], numbers[0])
    return chosen(mask, numbers)


def bernoulli_(x: Tensor, p: float, generator: Generator | None = None) -> Tensor:
    """``x.bernoulli_(p, generator=generator)``. x: of the CPU, with at least one element, none of them twice."""
    return x.copy_(drawn_like(x, p, generator))


def drawn_like(x: Tensor, p: float, generator: Generator | None = None) -> Tensor:
    """What is drawn for each element of ``torch.empty_like(x)``: uint8, 1 with probability p."""
    mask = torch.empty_like(x, dtype=torch.uint8)
    if mask.numel():
        draw_bernoulli(flat(mask), p, generator)
    return mask


@kept
def scale_of(p: float, dtype: torch.dtype) -> float:
    """1 / (1 - p), as PyTorch rounds it."""
    with _disable_current_modes():  # a number, also where a gradient is traced
        return aten.div_.Scalar(torch.ones(1, dtype=dtype), 1 - p).item()


def _dropped(structure, operands, attributes) -> tuple[Tensor, Tensor]:
    (x,), (p, _, of_unit) = operands, attributes
    mask, scale = drawn_like(x, 1 - p), scale_of(p, x.dtype)
    return rectified(x, mask, scale) if of_unit else masked.run(None, (x, mask), (scale, False)), mask


def _gradients(structure, attributes, saved, memo, needed, cotangent, *of_mask) -> list[Tensor | None]:
    if not needed[0]:
        return [None]
    return [masked(structure, (cotangent, saved[0]), (scale_of(attributes[0], cotangent.dtype), attributes[2]))]


dropped = Operator(
    "dropped",
    run=lambda structure, operands, attributes: _dropped(structure, operands, attributes)[0],
    library=_dropped,
    gradients=_gradients,
    operands="Tensor x",
    attributes="float p, int place, bool rectified",
    results="(Tensor, Tensor)",
    like=lambda structure, operands, attributes, transposed: (
        torch.empty_like(operands[0]),
        torch.empty_like(operands[0], dtype=torch.uint8),
    ),
    saved=lambda attributes, operands, results: ((results[1],), None),
)
"""For programs that are traced: (what stands for no structure, (x,), (p, place, rectified)) to `dropout` of x, or of
max(x, 0), and the mask, from ``DEAD`` on where x is not above 0. place: a number that no other call of the program
has: two with the same arguments would be taken for one."""
