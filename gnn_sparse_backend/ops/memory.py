"""Where operators put their results."""
from __future__ import annotations

import ctypes
import functools
import sys

import torch
from torch import Tensor

_HUGE = 2 << 20
_MADV_HUGEPAGE = 14
# Below this the pages of a fresh tensor are few, and malloc reuses them.
_WORTHWHILE = 4 << 20


def empty(like: Tensor, *shape: int) -> Tensor:
    """An uninitialised, contiguous tensor of the type and device of ``like``; a large one on huge pages where Linux allows.

    A large tensor is fresh memory from the system at every call, and its first touch costs a page fault per 4 KiB: for an
    output that is written once this was up to half of the whole product's time. Huge pages take 512 times fewer,
    and later gathers from the tensor miss the TLB less. They are a hint: where it is refused nothing changes.
    """
    out = like.new_empty(shape)
    nbytes = out.numel() * out.element_size()
    if nbytes >= _WORTHWHILE and out.device.type == "cpu":
        advise = _madvise()
        if advise is not None:
            address = out.data_ptr()
            start = -(-address // _HUGE) * _HUGE
            length = (address + nbytes) // _HUGE * _HUGE - start
            if length > 0:
                advise(start, length, _MADV_HUGEPAGE)
    return out


@functools.lru_cache(maxsize=None)
def _madvise():
    if not sys.platform.startswith("linux"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    function.restype = ctypes.c_int
    return function
