"""The first large results of a process: what each call takes, and the most memory until then.

A sum over neighbours under a framework, forward and backward, on a graph whose results have 147 MiB, in a fresh process
for each contender. Kernels are on the disk, as they are for all but the first process on a machine. The first call
makes what is kept of the graph, and everything is touched for the first time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from benchmarks.layers import call_overhead, contenders
from benchmarks.support import cli, memory, report
from benchmarks.support.generators import power_law

NODES, DEGREE, WIDTH, CALLS = 150_000, 10, 256, 5


def measure(contender: str, nodes: int, threads: int, seed: int) -> list[dict]:
    """Seconds of each call, and bytes at the peak until its end over those before the first; for a process of its
    own.
    """
    cli.set_threads(threads)
    cli.quiet_libraries()
    matrix = power_law(nodes, DEGREE * nodes, 2.2, nodes // 20, seed)
    block = call_overhead.Block(
        *(torch.from_numpy(array.astype(np.int32)) for array in (matrix.indptr, matrix.indices)), (nodes, nodes)
    )
    (caller,) = call_overhead.shims([contenders.framework_of(contender)])
    graph = caller.prepare(block)
    x, cotangent = torch.ones(nodes, WIDTH, requires_grad=True), torch.ones(nodes, WIDTH)
    found = []
    with contenders.context_of(contender)():
        memory.release()
        start = memory.resident()
        memory.reset_peak()
        for _ in range(CALLS):
            x.grad = None
            begin = time.perf_counter()
            caller.call(graph, x, None).backward(cotangent)
            found.append({"seconds": time.perf_counter() - begin, "peak": memory.peak() - start})
    return found


def run(
    frameworks: Sequence[str], *, nodes: int, threads: int, seed: int, begin: Callable[[str], None] = lambda cell: None
) -> list[dict]:
    """A row for each contender; ``error`` in the place of ``calls`` where it could not be measured."""
    rows = []
    for contender in contenders.names(frameworks):
        begin(f"first calls: {contender}")
        row = {"contender": contender, "nodes": nodes, "width": WIDTH}
        try:
            if contender in contenders.ours(frameworks):  # once for the kernels, which are then on the disk
                memory.in_child(measure, contender, nodes, threads, seed)
            row["calls"] = memory.in_child(measure, contender, nodes, threads, seed)
        except memory.CannotMeasure as reason:
            row["error"] = str(reason)
        rows.append(row)
    return rows


def show(rows: Sequence[Mapping], console) -> None:
    """Milliseconds and MiB, a row for each contender."""
    table = report.table(
        f"The first calls of a process: a sum over neighbours, forward and backward, {rows[0]['nodes']:,} nodes, "
        f"{rows[0]['width']} features",
        ("contender",),
        (*(f"call {at}, ms" for at in range(1, CALLS + 1)), *(f"peak by {at}, MiB" for at in (1, CALLS))),
    )
    for row in rows:
        calls = row.get("calls")
        if calls is None:
            table.add_row(row["contender"], row["error"])
            continue
        table.add_row(
            row["contender"],
            *(f"{call['seconds'] * 1e3:.0f}" for call in calls),
            *(f"{calls[at]['peak'] / 2**20:.0f}" for at in (0, -1)),
        )
    console.print(table)
    console.print(
        "Each in a fresh process, kernels on the disk. peak: the resident set over that before the first call."
    )
