"""What the machine can do at best, measured, and how far a measured time is from it.

The roofline of Williams, Waterman and Patterson ("Roofline", CACM 2009): time >= max(bytes / bandwidth, flops / peak).
What a call must move and compute is counted in ``work.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from benchmarks.operators.work import Work

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

    def to_dict(self) -> dict:
        """The limits as plain values: bytes per second, operations per second."""
        return {
            "threads": self.threads,
            "stream_bytes_per_s": self.stream,
            "gather_bytes_per_s": self.gather,
            "gemm_flops_per_s": self.flops,
            "copy_bytes_per_s": [{"working_set": size, "rate": rate} for size, rate in self.copy],
        }

    def bounds(self, work: Work) -> tuple[float, float]:
        """Seconds that ``work`` takes at least, by its compulsory bytes and by its gather bytes.

        Both at the bandwidth of a working set of the compulsory bytes: a graph that fits the cache is held to the
        cache's rate.
        """
        rate = self.bandwidth(work.compulsory)
        arithmetic = work.flops / self.flops
        return max(work.compulsory / rate, arithmetic), max(work.gather / rate, arithmetic)

    def distance(self, work: Work, seconds: float | None) -> dict:
        """The distance of a measured time to both bounds, as plain values.

        bound_compulsory, bound_gather: seconds. roofline_compulsory, roofline_gather: the bound over ``seconds``;
        None without them. binds: "memory" or "arithmetic", whichever sets the compulsory bound. memory, arithmetic:
        the share of the measured bandwidth (for the compulsory bytes) and of the measured peak that ``seconds``
        amount to.
        """
        compulsory, gather = self.bounds(work)
        memory, arithmetic = work.compulsory / self.bandwidth(work.compulsory), work.flops / self.flops

        def share(bound: float) -> float | None:
            return bound / seconds if seconds else None

        return {
            "bytes_compulsory": work.compulsory,
            "bytes_gather": work.gather,
            "flops": work.flops,
            "bound_compulsory": compulsory,
            "bound_gather": gather,
            "binds": "memory" if memory >= arithmetic else "arithmetic",
            "roofline_compulsory": share(compulsory),
            "roofline_gather": share(gather),
            "memory": share(memory),
            "arithmetic": share(arithmetic),
        }


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


def with_products_in(limits: Roofline, dtype: torch.dtype, *, gemm: int = 512, repeats: int = 5) -> Roofline:
    """The same limits with the peak of matrix products in another type, where that is higher: values may be converted.

    gemm: small, for some processors take a hundred times as long in a half type.
    """
    previous = torch.get_num_threads()
    torch.set_num_threads(limits.threads)
    try:
        return replace(limits, flops=max(limits.flops, _gemm_rate(gemm, repeats, dtype)))
    finally:
        torch.set_num_threads(previous)


def by_type(threads: int, types: Mapping[str, torch.dtype], *, gemm: int = 512) -> dict[str, Roofline]:
    """The limits by the name of a type, and those of "float32" in any case. Working sets of 256 MiB are the largest."""
    single = measure(threads, largest=256 * MiB)
    others = {name: dtype for name, dtype in types.items() if name != "float32"}
    return {"float32": single} | {name: with_products_in(single, dtype, gemm=gemm) for name, dtype in others.items()}


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


def _gemm_rate(size: int, repeats: int, dtype: torch.dtype = torch.float32) -> float:
    a, b, out = (torch.rand(size, size).to(dtype) for _ in range(3))
    return 2 * size**3 / _best_seconds(lambda: torch.mm(a, b, out=out), repeats)
