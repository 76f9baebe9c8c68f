"""Many edges by their rows, on all threads, with little memory besides the result (`compiler.loops.ordering`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...compiler.compile import compile_loops
from ...deferred import later
from ...runtime import devices
from ...runtime.memory import empty
from ...runtime.type_names import type_name

if TYPE_CHECKING:
    from ...compiler.loops import ordering
else:
    ordering = later(__name__, "...compiler.loops.ordering")

LARGE = 1 << 22
"""Edges from which on it pays to compile kernels for them; fewer are sorted by SciPy. Tests lower it."""
BUCKETS = 8
"""Bits of the number of buckets. More of them are written to at too many places at a time, fewer are too large to be
sorted in a cache."""
_READ = (torch.int32, torch.int64)


def is_large(indices: Tensor) -> bool:
    """Whether these are many edges, on a CPU."""
    return indices.numel() >= LARGE and devices.on_cpu(indices.device)


def sort_list(row: Tensor, col: Tensor, num_rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """(indptr, indices, edge_ids) of the edges ``(row[e], col[e])`` by rows, in the type ``dtype``.

    row, col: (edges,) integers, in range. Edges of a row keep their order.
    """
    row, col = (_readable(each, dtype) for each in (row, col))
    indptr, indices, edge_ids = _sorted(
        row, (col,), type_name(col.dtype), ordering.COUNTED, buckets_of(row, num_rows), dtype
    )
    return indptr, indices, edge_ids


def sort_rows(indptr: Tensor, indices: Tensor, edge_ids: Tensor | None, num_cols: int) -> tuple[Tensor, Tensor, Tensor]:
    """(indptr, indices, edge_ids) of the transpose of CSR arrays of one type; entries of a column keep their order."""
    given = (indptr.numel() - 1, indptr) if edge_ids is None else (indptr.numel() - 1, indptr, edge_ids)
    numbers = ordering.COUNTED if edge_ids is None else ordering.GIVEN
    begins, rows, ids = _sorted(indices, given, "", numbers, buckets_of(indices, num_cols), indices.dtype)
    return begins, rows, ids


def is_mirrored(indptr: Tensor, indices: Tensor) -> bool:
    """Whether a square CSR structure on a CPU is its own transpose, row by row in the same order: its rows ascend then.

    Takes the time and the memory of a transpose without numbers of edges, 6 bytes for each edge for as long as it
    takes; of most structures that are not symmetric that of counting.
    """
    rows = indptr.numel() - 1
    buckets = buckets_of(indices, rows)
    first_rows = (np.arange(buckets.begins.size) << buckets.shift).clip(max=rows)
    if not np.array_equal(indptr.numpy()[first_rows], buckets.begins):
        return False
    arrays = _sorted(indices, (rows, indptr), "", ordering.NONE, buckets, indices.dtype)
    return all(map(torch.equal, arrays, (indptr, indices)))


class Buckets(NamedTuple):
    """Rows in buckets of ``1 << shift``.

    rows: how many there are. begins: where the edges of each bucket begin. counts: edges of each chunk and bucket.
    """

    rows: int
    shift: int
    begins: np.ndarray
    counts: np.ndarray


def buckets_of(keys: Tensor, num_rows: int) -> Buckets:
    """The buckets of edges whose rows these are, shared out to a chunk for each thread."""
    threads = torch.get_num_threads()
    shift = min(max((max(num_rows, 1) - 1).bit_length() - BUCKETS, 0), ordering.LOW)
    buckets = -(-max(num_rows, 1) // (1 << shift))
    counts = np.empty((threads, buckets), np.int64)
    compile_loops(ordering.count_function, type_name(keys.dtype)).entry(
        keys.numel(), threads, buckets, shift, keys, _flat(counts)
    )
    begins = np.zeros(buckets + 1, np.int64)
    np.cumsum(counts.sum(0), out=begins[1:])
    return Buckets(num_rows, shift, begins, counts)


def _sorted(
    keys: Tensor, given: tuple, value: str, numbers: str, buckets: Buckets, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """(indptr, indices, edge_ids) of edges by their rows ``keys``; without the last where there are no numbers.

    given: the values and numbers of the edges, as `spread_function` has them.
    """
    rows, shift, begins, counts = buckets
    (threads, count), edges = counts.shape, keys.numel()
    low, index = torch.empty(edges, dtype=torch.uint16), type_name(dtype)
    arrays = [empty(keys, edges, dtype=dtype) for _ in range(1 if numbers == ordering.NONE else 2)]
    places = begins[:-1] + np.cumsum(counts, 0) - counts
    spread = compile_loops(ordering.spread_function, type_name(keys.dtype), value, index, numbers)
    spread.entry(edges, threads, count, shift, keys, *given, _flat(places), low, *arrays)
    first = np.searchsorted(begins, np.linspace(0, edges, threads + 1)[1:-1])
    first = np.concatenate(([0], first, [count])).astype(np.int64)
    room = int(np.diff(begins).max())
    held = torch.empty(2 * threads * room, dtype=dtype)
    indptr = empty(keys, rows + 1, dtype=dtype)
    sizes = edges, rows, count, shift, threads, room
    compile_loops(ordering.settle_function, index, numbers != ordering.NONE).entry(
        *sizes, _flat(first), _flat(begins), low, held, indptr, *arrays
    )
    return indptr, *arrays


def _flat(array: np.ndarray) -> Tensor:
    """An array as kernels take it."""
    return torch.from_numpy(array.reshape(-1))


def _readable(array: Tensor, dtype: torch.dtype) -> Tensor:
    """Integers as the kernels read them, those of other types and with gaps in a copy of type ``dtype``."""
    return array if array.dtype in _READ and array.is_contiguous() else array.to(dtype).contiguous()
