"""What a GPU can do at best, measured, and what the benchmarks on it say of a cell: ratios, geometric means, shares of
the limits.

Times come in pairs throughout: with the second-level cache as the call before has left it, and flushed (``CACHES``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from rich.console import Console

from benchmarks.operators.work import Work
from benchmarks.support import report, summary
from benchmarks.support.gpu import timing as gpu_timing
from benchmarks.support.roofline import Roofline

CACHES = ("warm", "flushed")
# Rows and columns of the matrices whose product gives the peak: long enough that nothing but the multiplication counts.
GEMM = 8192
GATHERED_WIDTH = 128
NO_RATINGS = {"ratio": None, "memory_ratio": None, "share": None}
HEADINGS = ("ratio", "memory ratio", "of bandwidth", "a row per edge", "of matrix peak")
NOTE = (
    "ratio: the best peer's time over ours, cache warm / flushed, above 1 we are faster; memory ratio: the leanest "
    "peer's peak over "
    "ours. of bandwidth: what of a copy's bandwidth the bytes that must move are, and those with a row per edge, which "
    "caches can "
    "push above 100 %; of matrix peak: what of a large matrix product's rate the operations are. All of the best of "
    "ours."
)


def limits(device: torch.device, dtype: torch.dtype, gemm: int = GEMM) -> Roofline:
    """A copy's bandwidth, that of rows of 512 bytes gathered at random, and operations a second of a matrix product of
    ``dtype``.

    The product runs as PyTorch is set: float32 on Tensor Cores where ``torch.set_float32_matmul_precision`` allows
    tf32.
    """
    flops = _matrix_rate(device, dtype, gemm)
    copied, rate = 2 * gpu_timing.COPIED_BYTES, gpu_timing.bandwidth(device)
    return Roofline(0, ((copied, rate),), _gather_rate(device), flops)


def _matrix_rate(device: torch.device, dtype: torch.dtype, size: int) -> float:
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = a @ b
    return 2 * size**3 / gpu_timing.seconds(lambda: torch.matmul(a, b, out=out), device, False)


def _gather_rate(device: torch.device) -> float:
    table = torch.zeros(gpu_timing.COPIED_BYTES // (4 * GATHERED_WIDTH), GATHERED_WIDTH, device=device)
    rows = torch.randint(len(table), (max(1, len(table) // 4),), device=device)
    out = torch.empty(len(rows), GATHERED_WIDTH, device=device)
    taken = gpu_timing.seconds(lambda: torch.index_select(table, 0, rows, out=out), device, False)
    return 2 * out.numel() * out.element_size() / taken


def rate(
    times: Mapping[str, Mapping[str, float]], ours: Collection[str], work: Mapping[str, Work], measured: Roofline | None
) -> dict:
    """``ratio``, ``memory_ratio`` and ``share``; each None where we, or all peers, have no figure.

    times: by contender ``warm`` and ``flushed`` seconds, and ``peak`` bytes if that was measured. work: of the
    contenders of ours.
    share: of what ``measured`` has, ``memory`` for the bytes that must move, ``gather`` for a row per edge,
    ``arithmetic`` for the operations; pairs as of ``CACHES``, each of the fastest of ours.
    """
    ratios = [summary.speedup({name: each[cache] for name, each in times.items()}, ours) for cache in CACHES]
    peaks = {name: each["peak"] for name, each in times.items() if "peak" in each}
    shares: dict[str, list[float]] = {"memory": [], "gather": [], "arithmetic": []}
    for cache in CACHES:
        best = summary.best({name: each[cache] for name, each in times.items()}, ours)
        if best is None or measured is None or best not in work:
            return {
                "ratio": None if None in ratios else ratios,
                "memory_ratio": summary.speedup(peaks, ours),
                "share": None,
            }
        taken = times[best][cache]
        shares["memory"].append(work[best].compulsory / measured.stream / taken)
        shares["gather"].append(work[best].gather / measured.stream / taken)
        shares["arithmetic"].append(work[best].flops / measured.flops / taken)
    return {"ratio": None if None in ratios else ratios, "memory_ratio": summary.speedup(peaks, ours), "share": shares}


def columns(cell: Mapping) -> list[str]:
    """The entries under ``HEADINGS``."""
    pairs = [
        " / ".join(map(report.ratio, cell["ratio"])) if cell["ratio"] else report.MISSING,
        report.ratio(cell["memory_ratio"]),
    ]
    shares = cell["share"] or {}
    return pairs + [
        " / ".join(map(report.percent, shares[key])) if key in shares else report.MISSING
        for key in ("memory", "gather", "arithmetic")
    ]


def summarise(cells: Sequence[Mapping], keys: Sequence[str]) -> dict:
    """Of ``warm``, ``flushed`` and ``memory``: geometric mean, least, where that is, and geometric means by each key of
    ``keys``.
    """
    found = {}
    for number, what in enumerate((*CACHES, "memory")):
        rated = [
            {**cell, "speedup": cell["memory_ratio"] if what == "memory" else cell["ratio"] and cell["ratio"][number]}
            for cell in cells
        ]
        known = [cell for cell in rated if cell["speedup"] is not None]
        least = min(known, key=lambda cell: cell["speedup"], default=None)
        found[what] = {
            "geometric_mean": summary.mean_or_none(cell["speedup"] for cell in known),
            "cells": len(known),
            "least": least and least["speedup"],
            "least_at": least and {key: least[key] for key in keys},
            **{f"by_{key}": summary.by_key(rated, key) for key in keys},
        }
    return found


def print_summary(found: Mapping, console: Console) -> None:
    """The lines of ``summarise``; nothing of what was not measured."""
    for what, words in zip((*CACHES, "memory"), ("time, cache warm", "time, cache flushed", "peak memory")):
        each = found[what]
        if not each["cells"]:
            continue
        where = ", ".join(f"{key} {value}" for key, value in each["least_at"].items())
        console.print(
            f"[bold]{words}, best peer over ours, {each['cells']} cells: geometric mean "
            f"{report.ratio(each['geometric_mean'])}, least {report.ratio(each['least'])}[/] ({where})"
        )
        for key in each["least_at"]:
            parts = ", ".join(f"{value} {report.ratio(mean)}" for value, mean in each[f"by_{key}"].items())
            console.print(f"  by {key}: {parts}")


def print_limits(measured: Roofline | None, dtype: str, console: Console) -> None:
    """What the shares are of."""
    if measured is not None:
        console.print(
            f"measured limits: copy {measured.stream / 1e12:.2f} TB/s, gather of 512-byte rows "
            f"{measured.gather / 1e12:.2f} TB/s, {dtype} matrix product {measured.flops / 1e12:.0f} TFLOP/s"
        )
