"""Where operators put their results: fresh small tensors, and large ones in memory that earlier results have left."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from . import large_blocks
from .machine import MEMORY
from .pool import POOL, WORTHWHILE


def check_memory(what: str, shape: Sequence[int], itemsize: int) -> None:
    """Raise MemoryError where a tensor of this shape and itemsize cannot fit into memory. what: it is, in words."""
    nbytes = prod(shape) * itemsize
    if nbytes > MEMORY:
        raise MemoryError(
            f"{what} of shape {tuple(shape)} takes {nbytes:,} bytes, and this machine has {MEMORY:,} bytes of memory; "
            "give fewer nodes, edges or features at a time"
        )


def check_written_out(what: str, x: Tensor) -> None:
    """Raise MemoryError for a view that repeats its storage, as ``expand`` makes one, and would not fit written out:
    whoever reads it wants a copy. What a file that is mapped into memory holds may be larger.
    """
    if x.is_cpu and x.untyped_storage().nbytes() < x.nbytes:
        check_memory(f"{what}, written out in {x.dtype},", x.shape, x.itemsize)


def empty(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """An uninitialised, contiguous tensor on the device and of the type of ``like``, or of ``dtype``; a large one from
    the pool, or from the blocks that serve all large tensors (``gsb.reuse_memory``), where these are in use.

    The result is never a view: autograd lets nobody write to a view that an operator returns.
    """
    wanted = dtype or like.dtype
    nbytes = wanted.itemsize
    for length in shape:
        nbytes *= length
    if nbytes < WORTHWHILE or like.device.type != "cpu":
        # lengths one by one, and no type, are what PyTorch takes in half the time
        return like.new_empty(*shape) if dtype is None and shape else like.new_empty(shape, dtype=wanted)
    if nbytes > MEMORY:
        check_memory(f"a result in {wanted}", shape, wanted.itemsize)
    if not POOL.limit or (nbytes >= large_blocks.LEAST and large_blocks.in_use()):
        return like.new_empty(shape, dtype=wanted)
    flat = torch.frombuffer(POOL.lease(nbytes), dtype=wanted, count=nbytes // wanted.itemsize)
    return torch.ops.aten._unsafe_view.default(flat, shape)


def empty_cache() -> None:
    """Give the memory that is kept for later results back to the system. Live tensors are not touched."""
    POOL.clear()
    large_blocks.clear()
