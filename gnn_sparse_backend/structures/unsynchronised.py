"""Segments and graphs of one call on a GPU, of whose values nothing is read, so that the call does not wait for what
computes them.

Whoever makes ``Segments`` or a ``Graph`` beforehand has their values checked, which waits once. Here types and shapes
are checked, and what has to hold of the values is promised to the GPU (``torch._assert_async``), as by PyTorch's own
indexing: a promise that is not kept ends the run with its words at the next synchronisation. Whatever the values are,
no kernel reads or writes out of bounds: they are brought into range first. Arrays whose sizes depend on the values have
as many entries as sizes that are known allow at most (``formats.partitions.row_parts``).

Values on the CPU, for rows on a GPU, are checked where they are, and copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..runtime import devices
from .build import compress, index_dtype
from .checks import as_index_vector, check_one_per_edge, check_range

if TYPE_CHECKING:
    from .segments import Segments


def segments_of_lengths(lengths, num_rows: int, device: torch.device) -> Segments:
    """``Segments.from_lengths`` for a call with rows on this device."""
    from .segments import Segments

    lengths = as_index_vector("lengths", lengths)
    if devices.on_cpu(lengths.device) or not lengths.numel():
        return Segments.from_lengths(lengths, num_rows).to(device)
    _check_device("lengths", lengths, device)
    lengths = lengths.long()
    safe = lengths.clamp(0, num_rows)  # the sum of any others might overflow
    ends = safe.cumsum(0)
    promise(
        (lengths == safe).all() & (ends[-1] == num_rows),
        f"lengths must not be negative and must sum to the number of rows {num_rows}; Segments.from_lengths says where "
        f"they do not",
    )
    offsets = torch.cat([ends.new_zeros(1), ends.clamp_(max=num_rows)])
    return Segments(offsets.to(index_dtype((lengths.numel(), 0), num_rows)), None, num_rows, unsynchronised=True)


def segments_of_offsets(offsets, num_rows: int, device: torch.device, whole: bool = True) -> Segments:
    """``Segments.from_offsets`` for a call with rows on this device. whole: every row has to belong to a segment."""
    from .segments import Segments

    offsets = as_index_vector("offsets", offsets)
    if devices.on_cpu(offsets.device) or not offsets.numel():
        return Segments.from_offsets(offsets, num_rows).to(device)
    _check_device("offsets", offsets, device)
    safe = _offsets_in_range(
        offsets,
        num_rows,
        whole,
        f"offsets must go from 0 to the number of rows {num_rows} and not decrease; "
        "Segments.from_offsets says where they do not",
    )
    return Segments(safe.to(index_dtype((offsets.numel(), 0), num_rows)), None, num_rows, unsynchronised=True)


def segments_of_index(index, num_segments: int, device: torch.device) -> Segments:
    """``Segments.from_index`` for a call with rows on this device; rows are sorted even where they are in order."""
    from .segments import Segments

    index = as_index_vector("index", index)
    if devices.on_cpu(index.device):
        return Segments.from_index(index, num_segments).to(device)
    index = index_in_range("index", index, num_segments, "segments", device)
    in_order, order = torch.sort(index.to(index_dtype((num_segments, 0), index.numel())), stable=True)
    return Segments(compress(in_order, num_segments), order.to(in_order.dtype), index.numel(), unsynchronised=True)


def csr_in_range(
    indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, num_sources: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """CSR arrays on a GPU that nobody has checked, such as every kernel can walk, in one index type."""
    edges, device = indices.numel(), indices.device
    if not indptr.numel():
        raise ValueError("indptr must have destinations + 1 entries, got none")
    if edge_ids is not None:
        check_one_per_edge(edge_ids, edges)
    indptr = _offsets_in_range(
        indptr,
        edges,
        True,
        f"indptr must go from 0 to the number of edges {edges} and not decrease; Graph.from_csr says where it does not",
    )
    indices = index_in_range("indices", indices, num_sources, "sources", device)
    if edge_ids is not None:
        edge_ids = index_in_range("edge_ids", edge_ids, edges, "edges", device)
    dtype = index_dtype((indptr.numel() - 1, num_sources), edges)
    return indptr.to(dtype), indices.to(dtype), None if edge_ids is None else edge_ids.to(dtype)


def index_in_range(name: str, values, bound: int, of_what: str, device: torch.device) -> Tensor:
    """An index vector for a call with operands on this device, all of whose entries are in [0, bound)."""
    values = as_index_vector(name, values)
    if devices.on_cpu(values.device) or not bound or not values.numel():
        check_range(name, values, bound, of_what)
        return values.to(device, non_blocking=True)
    _check_device(name, values, device)
    least, largest = torch.aminmax(values)
    promise(
        (least >= 0) & (largest.long() < bound),
        f"{name} is out of range: there are {bound} {of_what}, so entries must be in [0, {bound})",
    )
    return values.clamp(0, min(bound - 1, torch.iinfo(values.dtype).max))


def order_in_range(order: Tensor) -> Tensor:
    """What has to name each of its own positions once."""
    rows = order.numel()
    safe = order.clamp(0, max(rows - 1, 0))
    named = torch.zeros(rows, dtype=torch.bool, device=order.device).index_fill_(0, safe.long(), True)
    promise((order == safe).all() & named.all(), f"order must name each of {rows} rows once")
    return safe


def _offsets_in_range(offsets: Tensor, total: int, whole: bool, words: str) -> Tensor:
    """What has to go from 0 to ``total``, or where not ``whole`` to no more than that, and not decrease; in int64."""
    offsets = offsets.long()
    safe = offsets.clamp(0, total).cummax(0).values
    kept = (offsets == safe).all() & (offsets[0] == 0)
    promise(kept & (offsets[-1] == total) if whole else kept, words)
    return safe


def promise(kept: Tensor, words: str) -> None:
    """Let the run end with ``words`` unless ``kept``, a truth value on a GPU, is true; without waiting for it."""
    torch._assert_async(kept, words)


def _check_device(name: str, values: Tensor, device: torch.device) -> None:
    if values.device != device:
        raise ValueError(f"{name} is on {values.device}, but the rows are on {device}; move one of them")
