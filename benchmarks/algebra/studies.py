"""Which schedule wins where: studies in the manner of sections 8.3 to 8.6 of Senanayake et al. (OOPSLA 2020).

Each study times schedules of one expression on several inputs, interleaved; answers are checked against float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.algebra.inputs import Input, like
from benchmarks.algebra.problem import Place, Problem
from benchmarks.support import report
from benchmarks.support.timing import Rules, interleaved

MATRIX = "B[i,j]"
PART = 1024
"""Elements of a part, where elements are shared out equally."""

Schedule = Callable[[Any], Any]


def _ordered(statement: Any) -> Any:
    return statement.reorder("i", "j", "r") if "r" in str(statement).split("\n")[0] else statement


def _positions(statement: Any) -> Any:
    return _ordered(statement).fuse("i", "j", "f").pos("f", "p", MATRIX)


def rows(statement: Any) -> Any:
    return _ordered(statement).split("i", "i0", "i1", 16).parallelize("i0", "threads")


def nonzeros_atomics(statement: Any) -> Any:
    return _positions(statement).split("p", "p0", "p1", PART).parallelize("p0", "threads", "atomics")


def nonzeros_temporary(statement: Any) -> Any:
    return _positions(statement).divide("p", "p0", "p1", 2).parallelize("p0", "threads", "temporary")


def as_on_gpu(statement: Any) -> Any:
    """Eight elements for each thread of the GPU, here for each turn of a thread of the CPU."""
    return _positions(statement).split("p", "p0", "p1", 8).parallelize("p0", "threads", "atomics")


def on_gpu(statement: Any) -> Any:
    """That schedule for a GPU: blocks of 256 threads."""
    blocks = _positions(statement).split("p", "b", "q", 2048).split("q", "t", "e", 8)
    return blocks.parallelize("b", "block", "atomics").parallelize("t", "thread", "atomics")


def tiled(statement: Any) -> Any:
    """Tiles of 32 columns outside of the rows."""
    cut = _ordered(statement).split("r", "r0", "r1", 32).reorder("r0", "i", "j", "r1")
    return cut.parallelize("i", "threads")


BY_ROWS = {"default": None, "rows": rows}
BALANCED = {"non-zeros, atomics": nonzeros_atomics, "non-zeros, temporary": nonzeros_temporary}


@dataclass(frozen=True)
class Study:
    """schedules: None is what the compiler chooses by itself. shapes: (rows, columns, elements, skew of the rows)."""

    title: str
    op: str
    width: int
    schedules: Mapping[str, Schedule | None]
    shapes: Mapping[str, tuple[int, int, int, float]]

    def inputs(self, scale: float, seed: int) -> list[Input]:
        found = []
        for name, (height, columns, count, skew) in self.shapes.items():
            # elements of a matrix go with its area, so that a small one is as full
            shape = max(2, int(height * scale)), max(2, int(columns * scale))
            found.append(like(name, "generated", shape, max(1, int(count * scale * scale)), (skew, 1.0))(seed))
        return found


_SKEWS = {f"skew {n}": (50_000, 50_000, 1_000_000, float(n)) for n in (1, 2, 4, 8)}
_FLAT = {"20 x 100,000": (20, 100_000, 400_000, 1.0), "100,000 x 20": (100_000, 20, 400_000, 1.0)}
_WIDE = {"uniform": (20_000, 20_000, 400_000, 1.0)}
STUDIES = {
    "skew-spmv": Study("Skew, SpMV", "spmv", 1, {**BY_ROWS, **BALANCED}, _SKEWS),
    "skew-spmm": Study("Skew, SpMM 32 wide", "spmm", 32, {**BY_ROWS, **BALANCED}, _SKEWS),
    "flat": Study("Short and wide, SpMV", "spmv", 1, {**BY_ROWS, **BALANCED}, _FLAT),
    "tiles": Study("Tiles of columns, SpMM 512 wide", "spmm", 512, {**BY_ROWS, "tiles": tiled}, _WIDE),
    "gpu": Study("A GPU's schedule on the CPU, SpMV", "spmv", 1, {**BY_ROWS, "as on a GPU": as_on_gpu}, _SKEWS),
}


def measure(study: Study, scale: float, budget: float, seed: int = 0) -> list[dict]:
    """A dictionary for each input: seconds, what is wrong, refused schedules, and seconds until a kernel was there."""
    from gnn_sparse_backend import tensor as st

    cells = []
    for given in study.inputs(scale, seed):
        problem = Problem(Place(study.op, given, study.width, seed))
        arrays = {"B": st.array(given.csr), "C": st.array(problem.factors[0])}
        calls, wrong, unable, prepared = {}, {}, {}, {}
        for name, schedule in study.schedules.items():
            begin = time.perf_counter()
            try:
                kernel = kernel_of(schedule, problem.place.expression, arrays)
            except st.ScheduleError as refused:
                unable[name] = str(refused)
                continue
            call = partial(kernel, **arrays)
            answer = np.asarray(call().to_dense())
            prepared[name] = time.perf_counter() - begin
            if (fault := problem.mismatch(answer)) is not None:
                wrong[name] = fault
            else:
                calls[name] = call
        timed = interleaved(calls, Rules(budget_s=budget / len(study.shapes), min_rounds=3))
        seconds = {name: timing.median for name, timing in timed.items()}
        winner = min(seconds, key=seconds.__getitem__, default=None)
        cells.append({"input": given.name, "seconds": seconds, "winner": winner, "wrong": wrong, "unable": unable,
                      "preparation": prepared})  # fmt: skip
    return cells


def kernel_of(schedule: Schedule | None, expression: str, arrays: Mapping[str, Any]) -> Any:
    """The kernel of an expression after the commands of a schedule."""
    from gnn_sparse_backend import tensor as st

    if schedule is None:
        return st.compile(expression, **arrays)
    return st.compile(schedule(st.statement(expression, **arrays)))


def gpu_sources(architectures: tuple[str, ...] = ("sm_80", "sm_90")) -> dict[str, int]:
    """Characters of the CUDA source of the GPU's schedule, for each architecture. Nothing is run."""
    from gnn_sparse_backend import tensor as st

    given = like("small", "generated", (300, 200), 2_000, (1.5, 1.0))(0)
    arrays = {"B": st.array(given.csr), "C": st.array(np.ones(200, np.float32))}
    scheduled = on_gpu(st.statement("A[i] = B[i,j] * C[j]", **arrays))
    return {name: len(scheduled.cuda(name)) for name in architectures}


def run(scale: float = 1.0, budget: float = 20.0, seed: int = 0) -> dict:
    found = {name: measure(study, scale, budget / len(STUDIES), seed) for name, study in STUDIES.items()}
    return {"scale": scale, "studies": found, "gpu": gpu_sources()}


def markdown(results: Mapping) -> str:
    """Tables of milliseconds; the fastest schedule of an input in bold."""
    lines = []
    for name, cells in results["studies"].items():
        study = STUDIES[name]
        lines += [f"## {study.title}", "", "| schedule | " + " | ".join(cell["input"] for cell in cells) + " |"]
        lines.append("| --- |" + " ---: |" * len(cells))
        for schedule in study.schedules:
            row = []
            for cell in cells:
                seconds = cell["seconds"].get(schedule)
                text = report.MISSING if seconds is None else f"{seconds * 1e3:.3f}"
                row.append(f"**{text}**" if schedule == cell["winner"] else text)
            lines.append(f"| {schedule} | " + " | ".join(row) + " |")
        lines.append("")
    return "\n".join(lines)


def panels(results: Mapping) -> report.Panels:
    """A panel for each study and a line for each schedule: how many times as long as the fastest it takes."""
    found: dict[str, dict[str, list]] = {}
    for name, cells in results["studies"].items():
        lines = found.setdefault(STUDIES[name].title, {})
        for cell in cells:
            for schedule, seconds in cell["seconds"].items():
                lines.setdefault(schedule, []).append((cell["input"], seconds / cell["seconds"][cell["winner"]]))
    return found
