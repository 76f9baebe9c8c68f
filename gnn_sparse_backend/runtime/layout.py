"""Dense operands in a form that compiled kernels read without risk."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..config import CUDA_ALIGNMENT


def kernel_ready(x: Tensor) -> Tensor:
    """``x`` itself if it is row-strided and aligned to its element, else a copy.

    Row-strided: compact apart from the distance between rows, which is at least a row. Views that overlap
    (``expand``), transposed views, lazily negated views, zeros without memory and storage at odd addresses are copied.
    """
    if x.is_neg():
        x = x.resolve_neg()
    if not (x.is_contiguous() or _is_row_strided(x)):
        x = x.contiguous()
    return x if in_memory(x, x.element_size()) else x.clone(memory_format=torch.contiguous_format)


def is_ready(x: Tensor) -> bool:
    """Whether `kernel_ready` gives the tensor itself."""
    return not x.is_neg() and (x.is_contiguous() or _is_row_strided(x)) and in_memory(x, x.element_size())


def in_memory(x: Tensor, alignment: int) -> bool:
    """Whether a tensor is at such an address; not at none, as a gradient of which PyTorch knows that it is zero."""
    address = x.data_ptr()
    return bool(address) and not address % alignment


ALIGNMENT = CUDA_ALIGNMENT.get() or 16
"""Bytes of a vector, at multiples of which rows begin that are loaded in vectors."""


def compact(x: Tensor) -> Tensor:
    """``x`` itself if it is contiguous and at an address that vectors may be loaded from, else a copy."""
    if x.is_neg():
        x = x.resolve_neg()
    x = x.contiguous()
    return x if in_memory(x, ALIGNMENT) else x.clone()


def matrices(w: Tensor) -> tuple[Tensor, bool]:
    """(..., F_in, F_out) matrices `compact` where they are, and whether they are stored column by column: then (...,
    F_out, F_in).
    """
    if not w.is_contiguous():
        columns = w.transpose(-2, -1)
        if columns.is_contiguous():
            return compact(columns), True
    return compact(w), False


class ByLayout(dict):
    """What calls a kernel, for matrices by rows (False) and by columns (True): ``make(by_columns)``, once each is
    met.
    """

    def __init__(self, make: Callable[[bool], Callable[..., None]]):
        super().__init__()
        self.make = make

    def __missing__(self, by_columns: bool) -> Callable[..., None]:
        made = self[by_columns] = self.make(by_columns)
        return made


def _is_row_strided(x: Tensor) -> bool:
    shape, strides = x.shape, x.stride()
    width = 1
    for size, stride in zip(shape[:0:-1], strides[:0:-1]):
        if stride != width or size == 1:
            return False
        width *= size
    return strides[0] >= width
