"""Layers, training epochs and networks on a GPU: ``--device cuda`` of the benchmarks that run a framework with and without us.

Each contender's first answer is compared with that of the first one of its kind without the backend. Then medians of single
calls: between two events on the stream, with the second-level cache as it was left and with other data written over it;
on the host, from a GPU that has nothing to do until the call returns, which is what calling costs; and the peak of what
PyTorch's allocator gives out during a call. DGL's wheel has no CUDA: what it says is quoted. Without a GPU every cell says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import contenders, gpu, machine, reasons, report
from benchmarks.gpu import NOT_MEASURED, SAMPLES
from benchmarks.turns import Switched

Mismatch = Callable[[tuple, tuple], str | None]


@dataclass(frozen=True)
class Cell:
    """What contenders are compared on.

    labels: what tells it from others, by heading. names: the contenders; those with the backend end in ``+gsb``, and come after
    their frameworks alone. make: ``(name, device)`` to a call on that device; it gives a tuple of tensors.
    mismatch: ``(answer, expected)`` to None, or what is wrong; expected is of the framework alone.
    """

    labels: Mapping[str, object]
    names: tuple[str, ...]
    make: Callable[[str, torch.device], Switched]
    mismatch: Mismatch


def measure(cell: Cell, device: torch.device | None) -> dict:
    """The cell as plain values; by contender a dict of seconds and bytes, or words."""
    found: dict[str, dict | str] = dict.fromkeys(cell.names, NOT_MEASURED)
    expected: dict[str, tuple] = {}
    for name in cell.names if device is not None else ():
        alone = name.removesuffix(contenders.BACKEND)
        try:
            call = cell.make(name, device)
            with call.context():
                answer, ours, fallbacks = reasons.count_calls(alone.partition("-")[0], call.call)
                if name == alone:
                    expected[alone] = answer
                elif alone not in expected:
                    raise RuntimeError("the framework alone has no answer to compare with")
                wrong = cell.mismatch(answer, expected[alone])
                del answer
                found[name] = f"wrong: {wrong}" if wrong else {**times(call.call, device), "ours": ours, "fallbacks": fallbacks}
        except Exception as error:  # one contender's failure is a result, and must not cost the others theirs
            found[name] = f"refused: {(str(error) or type(error).__name__).splitlines()[0]}"
    return {**cell.labels, "contenders": found}


def times(call: Callable[[], object], device: torch.device) -> dict[str, float]:
    """Median seconds ``warm``, ``flushed`` and ``host``, and the ``peak`` in bytes beyond what was there before the call."""
    warm, flushed = (gpu.seconds(call, device, flush) for flush in (False, True))
    host = []
    for _ in range(SAMPLES):
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
    return (f"{' / '.join(report.milliseconds(found[key]) for key in ('warm', 'flushed', 'host'))}, "
            f"{found['peak'] / 2**20:.0f} MiB")


def main(name: str, what: str, cells: Iterable[Cell], names: Sequence[str], headings: Sequence[str], out: Path,
         console: Console) -> int:
    """Print the table and write ``NAME_cuda.json``. 1 if an answer of ours was wrong, else 0.

    cells: made one after the other, for what they load is large. names: of all contenders. headings: of the labels.
    """
    device = torch.device("cuda") if torch.cuda.is_available() else None
    where = torch.cuda.get_device_name(device) if device else f"no GPU at hand: {NOT_MEASURED}"
    table = report.table(f"{what} on CUDA, ms: cache warm / flushed / on the host, peak memory ({where})", headings, names)
    done = []
    for cell in cells:
        done.append(measure(cell, device))
        table.add_row(*(str(done[-1][heading]) for heading in headings),
                      *(shown(done[-1]["contenders"].get(each, "")) for each in names))
    console.print(table)
    path = machine.write_json(out / f"{name}_cuda.json", {"device": where, "cells": done})
    console.print(f"written: {path}")
    answers = [(each, found) for cell in done for each, found in cell["contenders"].items()]
    return 1 if any(each.endswith(contenders.BACKEND) and str(found).startswith("wrong") for each, found in answers) else 0
