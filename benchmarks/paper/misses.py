"""Cache misses of SpMM by column partitions (SparseTIR, figure 12), counted or simulated, and the time beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from benchmarks.operators.work import INDEX_BYTES, VALUE_BYTES
from benchmarks.paper import counters
from benchmarks.paper.caches import Caches
from benchmarks.paper.sheets import Sheet
from benchmarks.paper.thresholds import timed
from benchmarks.support import report
from benchmarks.support.generators import power_law
from benchmarks.support.graphs import BenchmarkGraph, Recipe
from gnn_sparse_backend import Graph
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan
from gnn_sparse_backend.planner.cpu.rows import CpuPlan, RowPlan
from gnn_sparse_backend.planner.cpu.spmm import ahead_of, groups_of
from gnn_sparse_backend.planner.problem import Problem
from gnn_sparse_backend.tuning.tune import planned, problem_of_task
from gnn_sparse_backend.tuning.tuning_tasks import Task

MISSED = ("ppi", "debian", "arxiv")
"""Graphs whose misses are simulated, where they are among those that are asked for."""
OWN = {
    "100 a row": Recipe(
        "generated, 4,000,000 edges without communities",
        lambda seed: power_law(40_000, 4_000_000, 2.5, 5_000, seed),
        4_000_000,
    )
}
"""What partitions are for: each row of the operand is gathered often, from far apart, and there are few of results."""
_FAR = 1 << 40
"""Addresses between arrays: they share no lines, and begin at different sets."""


def measure(
    graph: BenchmarkGraph,
    width: int,
    partitions: Sequence[int],
    caches: Caches,
    sets: int,
    budget: float,
    pause: Callable[[float], None],
) -> list[dict]:
    """A cell for each number of partitions, as plain values. sets: of the first level that are simulated. pause: is
    told the seconds that are no part of the measurement.
    """
    task = Task("sum", "forward", Graph.from_csr(*_tensors(graph), graph.shape, trusted=True), width, torch.float32)
    problem = problem_of_task(task)
    plans = {count: plan_of(problem, count) for count in partitions}
    seconds = timed(task, plans.values(), budget, pause)
    begin, chosen = time.perf_counter(), caches.sampled(sets)
    found = []
    for count, plan in plans.items():
        lines = trace(graph, width, count, caches.line, chosen)
        first, second = caches.misses(lines)
        found.append(
            {
                "graph": graph.name,
                "features": width,
                "part": str(count),
                "partitions": count,
                "where": f"{graph.name}, {width} features, {count} partitions",
                "plan": str(plan),
                "seconds": seconds.get(plan),
                "accesses": len(lines),
                "l1_rate": first / max(len(lines), 1),
                "l2_rate": second / max(first, 1),
                "lines_beyond": second / max(chosen.mean(), 1e-9) / max(graph.num_edges, 1),
                "counted": counted(task, plan),
            }
        )
    pause(time.perf_counter() - begin)
    return found


def plan_of(problem: Problem, partitions: int) -> CpuPlan:
    """Visit one non-zero after the other, partition by partition."""
    groups = groups_of(problem)
    if partitions == 1:
        return RowPlan(groups, ahead_of(problem))
    return PartitionPlan(groups, ahead_of(problem, partitions), partitions=partitions)


def counted(task: Task, plan: CpuPlan) -> dict[str, int] | None:
    """What the processor counts of a call on one thread; None where it has no counters."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        call = task.runner()
        with planned(task.graph, task.kind, task.features, task.dtype, plan):
            call()
            return counters.count(call)
    except counters.Unavailable:
        return None
    finally:
        torch.set_num_threads(threads)


def trace(graph: BenchmarkGraph, width: int, partitions: int, line: int, chosen: np.ndarray) -> np.ndarray:
    """The lines that one thread touches, in order: those alone that lie in a chosen set of the first level.

    In each partition it goes through all rows: the row's offset; for each non-zero its column and a row of the dense
    operand; then the row of the result, which is read and written. chosen: (sets,) bool.
    """
    rows = np.repeat(np.arange(graph.shape[0], dtype=np.int64), np.diff(graph.indptr))
    columns = graph.indices.astype(np.int64)
    part = columns // max(-(-graph.shape[1] // partitions), 1)
    order = np.argsort(part, kind="stable")
    rows, columns, part = rows[order], columns[order], part[order]
    every = np.arange(partitions * graph.shape[0], dtype=np.int64)  # a row in a partition
    piece = part * graph.shape[0] + rows
    offsets = np.searchsorted(piece, every)  # where its non-zeros begin
    position = np.arange(len(columns))
    row_bytes = width * VALUE_BYTES
    # the moment of each access: rows begin before their first non-zero, and end after the last
    at_edge = (2 * (position + piece) + 1).astype(np.int64)
    begins = 2 * (offsets + every)
    ends = np.append(begins[1:], 2 * (len(columns) + len(every)))
    touched = [
        _touch(begins, every * INDEX_BYTES, INDEX_BYTES, 1, line, chosen),
        _touch(at_edge, position * INDEX_BYTES, INDEX_BYTES, 2, line, chosen),
        _touch(at_edge, columns * row_bytes, row_bytes, 3, line, chosen),
        _touch(ends - 1, every % graph.shape[0] * row_bytes, row_bytes, 4, line, chosen),
    ]
    moments, lines = (np.concatenate(each) for each in zip(*touched))
    return lines[np.argsort(moments, kind="stable")]


def _touch(moments: np.ndarray, begins: np.ndarray, size: int, array: int, line: int, chosen: np.ndarray):
    """(moments, lines) of reading ``size`` bytes from each offset of an array on, in the chosen sets."""
    begins = begins + array * _FAR
    first = begins // line
    when, touched = [], []
    for step in range((size - 1) // line + 2):  # one more where they begin within a line
        lines = first + step
        taken = chosen[lines % len(chosen)] & (lines * line < begins + size)
        when.append(moments[taken])
        touched.append(lines[taken])
    return np.concatenate(when), np.concatenate(touched)


def _tensors(graph: BenchmarkGraph) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices)


def sheets(cells: Sequence[Mapping], about: str) -> list[Sheet]:
    """about: how misses were found."""
    headings = ["graph", "features", "partitions", "L1 misses", "of these L2", "lines beyond L2 an edge", "ms", "plan"]
    rows = [
        [
            cell["graph"],
            str(cell["features"]),
            cell["part"],
            f"{100 * cell['l1_rate']:.1f} %",
            f"{100 * cell['l2_rate']:.1f} %",
            f"{cell['lines_beyond']:.2f}",
            report.milliseconds(cell["seconds"]),
            cell["plan"],
        ]
        for cell in cells
    ]
    notes = [about]
    if any(cell["counted"] for cell in cells):
        shown = (f"{cell['where']}: {cell['counted']}" for cell in cells if cell["counted"])
        notes.append("Counted by the processor, of a call on one thread: " + "; ".join(shown) + ".")
    return [Sheet("Misses by column partitions", headings, rows, notes=notes)]


def panels(cells: Sequence[Mapping]) -> report.Panels:
    """Rates and time, as multiples of those of one partition."""
    found: dict[str, dict[str, list]] = {}
    for cell in cells:
        name = f"{cell['graph']}, {cell['features']}"
        one = next(c for c in cells if (c["graph"], c["features"]) == (cell["graph"], cell["features"]))
        lines = found.setdefault(name, {})
        for label, key in (("L1 misses", "l1_rate"), ("lines beyond L2", "lines_beyond"), ("time", "seconds")):
            if cell[key] and one[key]:
                lines.setdefault(label, []).append((cell["partitions"], cell[key] / one[key]))
    return found
