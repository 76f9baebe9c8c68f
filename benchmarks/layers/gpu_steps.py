"""Layers, training epochs and networks on a GPU: ``--device cuda`` of the benchmarks that run a framework with and
without us.

Each contender's first answer is compared: with a reference where the benchmark has one, else with that of the same
framework without the backend. Then they take turns, and a time is the median of a contender's turns, each the median of
single calls: between two events on the stream, with the second-level cache as it was left and with other data written
over it; on the host, from a GPU that has nothing to do until the call returns, which is what calling costs; and the
peak of what PyTorch's allocator gives out during a call. Beside them the best peer over the best of ours in time and in
memory, and the shares of the GPU's measured bandwidth and matrix peak (``gpu_ratings``). DGL's wheel has no CUDA: what
it says is quoted. Without a GPU every cell says so.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.layers import contenders
from benchmarks.operators.work import Work
from benchmarks.planner import gpu_ratings
from benchmarks.support import machine, reasons, report
from benchmarks.support.gpu import timing as gpu_timing
from benchmarks.support.gpu.timing import NOT_MEASURED
from benchmarks.support.gpu.turns import first_line, in_turns, refusals
from benchmarks.support.roofline import Roofline
from benchmarks.support.turns import Switched

Mismatch = Callable[[tuple, tuple], str | None]


@dataclass(frozen=True)
class Cell:
    """What contenders are compared on.

    labels: what tells it from others, by heading. names: the contenders; those with the backend end in ``+gsb``, and
    come after their frameworks alone. make: ``(name, device)`` to a call on that device; it gives a tuple of tensors.
    mismatch: ``(answer, expected)`` to None, or what is wrong; expected is of ``reference``, or of the framework alone.
    work: of a contender with the backend, the least that it must do. reference: on a device, the answer that all must
    give.
    """

    labels: Mapping[str, object]
    names: tuple[str, ...]
    make: Callable[[str, torch.device], Switched]
    mismatch: Mismatch
    work: Callable[[str], Work]
    reference: Callable[[torch.device], tuple] | None = None


def measure(cell: Cell, device: torch.device | None, limits: Roofline | None = None) -> dict:
    """The cell as plain values; by contender a dict of seconds and bytes, or words; and what ``gpu_ratings.rate`` says
    of it.
    """
    if device is None:
        return {**cell.labels, "contenders": dict.fromkeys(cell.names, NOT_MEASURED), **gpu_ratings.NO_RATINGS}
    found: dict[str, dict | str] = {}
    expected: dict[str, tuple] = {}
    if cell.reference is not None:
        try:
            expected = dict.fromkeys(map(contenders.framework_of, cell.names), cell.reference(device))
        except Exception as error:  # too large for this GPU, perhaps
            return {
                **cell.labels,
                "contenders": dict.fromkeys(cell.names, f"no reference: {first_line(error)}"),
                **gpu_ratings.NO_RATINGS,
            }
    ready: dict[str, Switched] = {}
    for name in cell.names:
        with refusals(found, name):
            call = cell.make(name, device)
            found[name] = _checked(cell, name, call, expected)
            if not isinstance(found[name], str):
                ready[name] = call
    for name, medians in in_turns(ready, lambda name, call: turn(name, call, device), found).items():
        found[name] = medians | found[name]
    ours = [name for name in cell.names if name.endswith(contenders.BACKEND)]
    times = {name: each for name, each in found.items() if not isinstance(each, str)}
    work = {name: cell.work(name) for name in ours if name in times}
    return {**cell.labels, "contenders": found, **gpu_ratings.rate(times, ours, work, limits)}


def _checked(cell: Cell, name: str, call: Switched, expected: dict[str, tuple]) -> dict | str:
    """How many calls of the operators ran here, and why not, of a contender that answers right; else what is wrong."""
    alone = contenders.framework_of(name)
    with call.context():
        answer, ours, fallbacks = reasons.count_calls(alone.partition("-")[0], call.call)
    if name == alone and cell.reference is None:
        expected[alone] = answer
    elif alone not in expected:
        raise RuntimeError("the framework alone has no answer to compare with")
    wrong = cell.mismatch(answer, expected[alone])
    return f"wrong: {wrong}" if wrong else {"ours": ours, "fallbacks": fallbacks}


def turn(name: str, call: Switched, device: torch.device) -> dict[str, float]:
    """Return the figures of a contender's turn. What was derived of the graphs before it was switched on is derived
    anew, and not timed.
    """
    with call.context():
        call.call()
        found = times(call.call, device)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return found


def times(call: Callable[[], object], device: torch.device) -> dict[str, float]:
    """Median seconds ``warm``, ``flushed`` and ``host``, and the ``peak`` in bytes beyond what was there before the
    call.
    """
    warm, flushed = (gpu_timing.seconds(call, device, flush) for flush in (False, True))
    host: list[float] = []
    while not gpu_timing.enough(host):
        torch.cuda.synchronize(device)
        begin = time.perf_counter()
        call()
        host.append(time.perf_counter() - begin)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    return {"warm": warm, "flushed": flushed, "host": statistics.median(host), "peak": peak}


def shown(found: dict | str) -> str:
    """What a contender's column says."""
    if isinstance(found, str):
        return found
    return (
        f"{' / '.join(report.milliseconds(found[key]) for key in ('warm', 'flushed', 'host'))}, "
        f"{found['peak'] / 2**20:.0f} MiB"
    )


def main(
    name: str,
    what: str,
    cells: Iterable[Cell],
    names: Sequence[str],
    headings: Sequence[str],
    out: Path,
    console: Console,
    dtype: torch.dtype = torch.float32,
    precision: str | None = None,
) -> int:
    """Print the table and write ``NAME_cuda.json``. 1 if an answer of ours was wrong, else 0.

    cells: made one after the other, for what they load is large. names: of all contenders. headings: of the labels, by
    which ratios are summarised too. dtype: of the matrix product that gives the peak. precision: its name, if another
    than the dtype's.
    """
    device, where = gpu_timing.device_and_name()
    precision = precision or str(dtype).removeprefix("torch.")
    limits = gpu_ratings.limits(device, dtype) if device is not None else None
    table = report.table(
        f"{what}, {precision}, on CUDA, ms: cache warm / flushed / on the host, peak memory ({where})",
        headings,
        [*names, *gpu_ratings.HEADINGS],
    )
    done: list[dict] = []

    def written(**more) -> Path:
        return machine.write_json(
            out / f"{name}_cuda.json",
            {"device": where, "precision": precision, "roofline": limits and limits.to_dict(), "cells": done, **more},
        )

    for cell in cells:
        done.append(measure(cell, device, limits))
        row = [
            *(str(done[-1][heading]) for heading in headings),
            *(shown(done[-1]["contenders"].get(each, "")) for each in names),
        ]
        table.add_row(*row, *gpu_ratings.columns(done[-1]))
        if device is not None:  # a long run that is stopped leaves what it has measured
            written()
            console.print(
                ", ".join(map(str, cell.labels.values()))
                + ": "
                + "; ".join(f"{each} {shown(found)}" for each, found in done[-1]["contenders"].items()),
                highlight=False,
            )
    console.print(table)
    console.print(gpu_ratings.NOTE)
    gpu_ratings.print_limits(limits, precision, console)
    summarised = gpu_ratings.summarise(done, headings)
    gpu_ratings.print_summary(summarised, console)
    console.print(f"written: {written(summary=summarised)}")
    answers = [(each, found) for cell in done for each, found in cell["contenders"].items()]
    return (
        1 if any(each.endswith(contenders.BACKEND) and str(found).startswith("wrong") for each, found in answers) else 0
    )


def named(name: str, precision: str) -> str:
    """The name of a report: each precision but float32 has one of its own."""
    return name if precision == "float32" else f"{name}_{precision}"


def in_each_precision(
    name: str,
    what: str,
    cells: Callable[[str], Iterable[Cell]],
    names: Sequence[str],
    headings: Sequence[str],
    options: argparse.Namespace,
    console: Console,
) -> int:
    """`main` once for each of ``options.precisions``, with ``cells(precision)``; 1 if one of them gave 1, else 0."""
    return max(
        main(named(name, each), what, cells(each), names, headings, options.out, console, getattr(torch, each))
        for each in options.precisions
    )
