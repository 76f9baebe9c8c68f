"""Measures the constants of the planner's cost model on this machine with the kernels themselves."""
from __future__ import annotations

import time

import torch

from ..planner.calibrate import Probe, fit, probes, undisturbed
from ..planner.database import database
from .graph import Graph
from .plans import planned
from .tunable import Task

# Samples of a probe, and seconds for all samples of one.
_SAMPLES, _SECONDS = 25, 0.04


def calibrate(threads: int | None = None) -> dict[str, float]:
    """Measure, keep in the database, and return the units of the cost model (``planner.cost.DEFAULT_UNITS``), in seconds.

    About a second, and some more where the ten kernels have to be compiled.
    """
    threads = torch.get_num_threads() if threads is None else threads
    units = fit(undisturbed(measure_probes(threads)))
    database().set_units(units)
    return units


def measure_probes(threads: int) -> list[tuple[Probe, float]]:
    """Each probe and the seconds of a call: the least, for a disturbance only adds."""
    graphs: dict[tuple, Graph] = {}
    measured = []
    for probe in probes(threads):
        problem = probe.problem
        size = problem.rows, problem.cols, problem.nnz
        if size not in graphs:
            graphs[size] = _uniform(*size)
        task = Task("sum", "forward", graphs[size], problem.features, torch.float32)
        run = task.runner()
        samples: list[float] = []
        with planned(task.graph, task.kind, task.features, 4, probe.plan):
            run()
            begin = time.perf_counter()
            while len(samples) < 3 or (len(samples) < _SAMPLES and time.perf_counter() - begin < _SECONDS):
                start = time.perf_counter()
                run()
                samples.append(time.perf_counter() - start)
        measured.append((probe, min(samples)))
    return measured


def _uniform(rows: int, cols: int, nnz: int) -> Graph:
    """Rows of equal degree with random columns."""
    degree = nnz // rows
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(cols, (nnz,), generator=generator, dtype=torch.int32)
    return Graph.from_csr(torch.arange(0, nnz + 1, degree, dtype=torch.int32), indices, (rows, cols), trusted=True)
