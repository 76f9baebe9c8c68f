"""Measures the constants of the planner's cost model on this machine with the kernels themselves."""

from __future__ import annotations

import time

import torch

from ..formats.counts import prefix_sums
from ..ops.core.plans import planned
from ..planner.calibrate import Probe, fit, probes, undisturbed
from ..planner.database import database
from ..structures.graph import Graph
from .tuning_tasks import Task

# Fewest rounds through all probes, and seconds that they go on for at least.
_FEWEST_ROUNDS, _SECONDS = 4, 1.5


def calibrate(threads: int | None = None) -> dict[str, float]:
    """Measure, keep in the database, and return the units of the cost model (``planner.cost.DEFAULT_UNITS``), in
    seconds.

    About a second, and some more where the ten kernels have to be compiled.
    """
    threads = torch.get_num_threads() if threads is None else threads
    units = fit(undisturbed(measure_probes(threads)))
    database().set_units(units)
    return units


def measure_probes(threads: int) -> list[tuple[Probe, float]]:
    """Each probe and the seconds of a call: the least of its rounds, for a disturbance only adds.

    The probes take turns, so that a disturbance falls on all of them; a call before each brings back the probe's own
    data.
    """
    graphs: dict[tuple, Graph] = {}
    runs = []
    for probe in probes(threads):
        problem = probe.problem
        size = problem.rows, problem.cols, problem.nnz
        if size not in graphs:
            graphs[size] = _random(*size)
        task = Task("sum", "forward", graphs[size], problem.features, torch.float32)
        runs.append((probe, task, task.runner()))
        _seconds(*runs[-1])  # may compile
    least = [float("inf")] * len(runs)
    begin, rounds = time.perf_counter(), 0
    while rounds < _FEWEST_ROUNDS or time.perf_counter() - begin < _SECONDS:
        least = [min(before, _seconds(*run)) for before, run in zip(least, runs)]
        rounds += 1
    return [(probe, seconds) for (probe, _, _), seconds in zip(runs, least)]


def _seconds(probe: Probe, task: Task, run) -> float:
    with planned(task.graph, task.kind, task.features, 4, probe.plan):
        run()
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin


def _random(rows: int, cols: int, nnz: int) -> Graph:
    """Non-zeros in random rows and columns. (Rows of equal degree end where the processor expects it: they cost half as
    much.)
    """
    generator = torch.Generator().manual_seed(0)
    degrees = torch.randint(rows, (nnz,), generator=generator).bincount(minlength=rows)
    indices = torch.randint(cols, (nnz,), generator=generator, dtype=torch.int32)
    return Graph.from_csr(prefix_sums(degrees).int(), indices, (rows, cols), trusted=True)
