"""What the machine can do at best, measured, and how much of it an SpMM must use.

The roofline of Williams, Waterman and Patterson ("Roofline", CACM 2009): time >= max(bytes / bandwidth, flops / peak).
Two byte counts bound the SpMM of a CSR matrix. *Compulsory*: the structure, every row of x that some edge needs once,
and the output once, as if the cache were infinite. *Gather*: the same with a row of x per edge, as if there were no cache.
A measured time lies above the compulsory bound; how far below the gather bound shows how much locality was used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

MiB = 1 << 20


@dataclass(frozen=True)
class Roofline:
    """Measured limits of this machine. Bandwidths count bytes read plus bytes written per second.

    copy: pairs (working set in bytes, bandwidth of a float32 copy of that working set), ascending.
    stream: the bandwidth of the largest copy, far beyond the caches.
    gather: copying random 512-byte rows of a table beyond the caches.
    flops: float32 GEMM, two operations per multiply-add.
    """

    threads: int
    copy: tuple[tuple[int, float], ...]
    gather: float
    flops: float

    @property
    def stream(self) -> float:
        return self.copy[-1][1]

    def bandwidth(self, working_set: float) -> float:
        """Copy bandwidth at a working set of so many bytes, interpolated over the logarithm of the size."""
        sizes, rates = zip(*self.copy)
        return float(np.interp(np.log(max(working_set, 1.0)), np.log(sizes), rates))

    def bounds(self, work: Work) -> tuple[float, float]:
        """Seconds that ``work`` takes at least, by its compulsory bytes and by its gather bytes.

        Both at the bandwidth of a working set of the compulsory bytes: a graph that fits the cache is held to the
        cache's rate.
        """
        rate = self.bandwidth(work.compulsory)
        arithmetic = work.flops / self.flops
        return max(work.compulsory / rate, arithmetic), max(work.gather / rate, arithmetic)


def measure(threads: int, *, largest: int = 1024 * MiB, gemm: int = 2048, repeats: int = 5) -> Roofline:
    """Measure the limits with torch's own kernels on ``threads`` threads; best of ``repeats``, as STREAM does."""
    previous = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        sizes = [MiB]
        while sizes[-1] * 4 < largest:
            sizes.append(sizes[-1] * 4)
        sizes.append(largest)
        copies = tuple((size, _copy_rate(size, repeats)) for size in sizes)
        return Roofline(threads, copies, _gather_rate(largest // 2, repeats), _gemm_rate(gemm, repeats))
    finally:
        torch.set_num_threads(previous)


def _best_seconds(call: Callable[[], object], repeats: int, inner: int = 1) -> float:
    call()
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(inner):
            call()
        best = min(best, (time.perf_counter() - begin) / inner)
    return best


def _copy_rate(working_set: int, repeats: int) -> float:
    source = torch.ones(working_set // 8)
    target = torch.zeros(working_set // 8)
    inner = max(1, 64 * MiB // working_set)
    return working_set / _best_seconds(lambda: target.copy_(source), repeats, inner)


def _gather_rate(table_bytes: int, repeats: int, width: int = 128) -> float:
    table = torch.ones(max(1, table_bytes // (4 * width)), width)
    rows = torch.randint(len(table), (max(1, len(table) // 4),), generator=torch.Generator().manual_seed(0))
    out = torch.empty(len(rows), width)
    seconds = _best_seconds(lambda: torch.index_select(table, 0, rows, out=out), repeats)
    return 2 * out.numel() * 4 / seconds


def _gemm_rate(size: int, repeats: int) -> float:
    a, b, out = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    return 2 * size**3 / _best_seconds(lambda: torch.mm(a, b, out=out), repeats)


@dataclass(frozen=True)
class Work:
    """Bytes and operations of one call. ``compulsory`` and ``gather`` are bytes, as defined above."""

    compulsory: int
    gather: int
    flops: int

    def __add__(self, other: Work) -> Work:
        return Work(self.compulsory + other.compulsory, self.gather + other.gather, self.flops + other.flops)


def spmm_work(rows: int, nnz: int, touched: int, width: int, *, weighted: bool,
              index_bytes: int = 4, value_bytes: int = 4) -> Work:
    """One CSR SpMM: ``rows`` output rows, ``touched`` distinct rows of x, ``width`` features.

    An unweighted edge costs one addition per feature, a weighted one a multiplication as well.
    """
    structure = (rows + 1 + nnz) * index_bytes + (nnz * value_bytes if weighted else 0)
    output = rows * width * value_bytes
    row = width * value_bytes
    return Work(structure + output + touched * row, structure + output + nnz * row, nnz * width * (2 if weighted else 1))


def sddmm_work(rows: int, nnz: int, touched: int, width: int, *, index_bytes: int = 4, value_bytes: int = 4) -> Work:
    """One SDDMM, the gradient of an SpMM to its weights: each edge is the dot product of two rows of ``width``.

    ``rows`` rows of the left operand are streamed once, ``touched`` distinct rows of the right one gathered.
    """
    structure = (rows + 1 + nnz) * index_bytes + nnz * value_bytes
    row = width * value_bytes
    return Work(structure + (rows + touched) * row, structure + (rows + nnz) * row, 2 * nnz * width)


def aggregation_work(indptr: np.ndarray, indices: np.ndarray, shape: tuple[int, int], width: int, *,
                     weighted: bool, backward: bool) -> Work:
    """Forward SpMM over a CSR graph and, with ``backward``, its gradients to x and (weighted) to the weights."""
    nnz = len(indices)
    sources = len(np.unique(indices))
    destinations = int(np.count_nonzero(np.diff(indptr)))
    work = spmm_work(shape[0], nnz, sources, width, weighted=weighted)
    if backward:
        work += spmm_work(shape[1], nnz, destinations, width, weighted=weighted)
        if weighted:
            work += sddmm_work(shape[0], nnz, sources, width)
    return work
