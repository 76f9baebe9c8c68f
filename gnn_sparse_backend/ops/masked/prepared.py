"""What ``precompile`` and ``explain`` know of operators on masks. Widths are (D, Dv), for each head of the mask."""

from __future__ import annotations

from ...structures.masks import Mask
from ..core.prepared import Kind, Prepared, Width, pair, prepares, structures
from .api import masked_sddmm, masked_spmm, sparse_attention
from .operators import ATTENTION, DOTS, SUMS


def _name(mask: Mask) -> str:
    queries, keys = mask.shape
    return f"{queries:,} x {keys:,}, {mask.num_blocks:,} blocks of {mask.block}"


def _batch(mask: Mask) -> int:
    return 1 if mask.padding is None else mask.padding.shape[0]


def _attention(mask: Mask, width: Width) -> list[tuple[int, ...]]:
    (own, value), (queries, keys) = pair(width), mask.shape
    planes = _batch(mask), mask.heads
    return [(*planes, queries, own), (*planes, keys, own), (*planes, keys, value)]


def _dots(mask: Mask, width: Width) -> list[tuple[int, ...]]:
    return [(1, mask.heads, length, pair(width)[0]) for length in mask.shape]


def _sums(mask: Mask, width: Width) -> list[tuple[int, ...]]:
    return [(1, 1, mask.num_blocks, mask.block, mask.block), (1, mask.heads, mask.shape[1], pair(width)[0])]


structures(Kind(Mask, "a gsb.masks.Mask", lambda mask: mask.num_blocks, _name, "sparse_attention"))
prepares(
    Prepared(
        "sparse_attention",
        ATTENTION,
        Mask,
        ("D", "Dv"),
        "D for both",
        _attention,
        lambda mask, q, k, v: sparse_attention(q, k, v, mask),
    ),
    Prepared("masked_sddmm", DOTS, Mask, ("D",), "", _dots, masked_sddmm),
    Prepared("masked_spmm", SUMS, Mask, ("D",), "", _sums, masked_spmm),
)
