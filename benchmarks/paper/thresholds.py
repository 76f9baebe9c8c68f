"""The rules of Huang et al. beside our cost model: what each chooses, the best that was measured, and their regret.

Two decisions (Huang et al., arXiv 2106.16064; Dai et al., DAC 2022): whether the non-zeros of a row are reduced side by
side or one after the other, and whether tasks hold equally many non-zeros or rows. Their library (``gespmmAlgSel`` of
dgSPARSE) reduces in parallel up to 4 features, and never takes equal non-zeros. Their paper does where rows are uneven.
Its bounds are those of GPUs, so that this rule is given the best bound in hindsight: what is left is regret that no
bound avoids. Ours in their place: non-zeros of a row in lanes of a vector, and groups of rows of about equal cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.paper.sheets import Sheet
from benchmarks.support import report
from benchmarks.support.graphs import BenchmarkGraph
from gnn_sparse_backend import Graph
from gnn_sparse_backend.planner.candidates import trials
from gnn_sparse_backend.planner.choose import choose
from gnn_sparse_backend.planner.cpu.rows import CpuPlan, RowPlan, may_go_in_lanes
from gnn_sparse_backend.planner.cpu.spmm import ahead_of, groups_of
from gnn_sparse_backend.planner.problem import Problem
from gnn_sparse_backend.tuning.tune import FEWEST_ROUNDS, problem_of_task, time_plans
from gnn_sparse_backend.tuning.tuning_tasks import Task

WIDTHS = (1, 2, 4, 8, 32, 128)
PARALLEL_UP_TO = 4
"""Features up to which dgSPARSE reduces in parallel."""
BOUNDS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, float("inf"))
"""Deviations of the length of a row, over its mean, from which non-zeros are balanced."""
PREPARING = 120.0
"""Seconds in which kernels of a cell are made at most; those that are not count as not measured."""
OURS, LIBRARY = "ours", "dgSPARSE"


@dataclass(frozen=True)
class Decision:
    """What the rules decide. parallel: non-zeros of a row side by side. balanced: tasks of equally many non-zeros."""

    parallel: bool
    balanced: bool

    def __str__(self) -> str:
        return f"{'PR' if self.parallel else 'SR'}-{'WB' if self.balanced else 'RB'}"


def decided(features: int, deviation: float, bound: float) -> Decision:
    """Huang et al.'s decision. deviation: of the lengths of rows, over their mean."""
    return Decision(features <= PARALLEL_UP_TO, deviation > bound)


def plan_of(problem: Problem, decision: Decision) -> CpuPlan:
    """Our nearest equivalent; widths that vectors do not divide have no lanes."""
    lanes = decision.parallel and may_go_in_lanes(problem)
    return RowPlan(groups_of(problem), ahead_of(problem), "nonzeros" if decision.balanced else "rows", lanes)


def measure(graph: BenchmarkGraph, width: int, budget: float, pause: Callable[[float], None]) -> dict:
    """A cell as plain values, times in seconds; the least samples count, as the planner's own measurements do. pause:
    is told the seconds that kernels and first calls took.
    """
    structure = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices), graph.shape
    task = Task("sum", "forward", Graph.from_csr(*structure, trusted=True), width, torch.float32)
    problem = problem_of_task(task)
    ours = choose(problem, lambda: "").plan
    theirs = {str(each): plan_of(problem, each) for each in _decisions()}
    plans = dict.fromkeys((ours, *theirs.values(), *trials(problem)))
    seconds = timed(task, plans, budget, pause)
    best = min(seconds, key=seconds.__getitem__)
    degrees = np.diff(graph.indptr)
    return {
        "graph": graph.name,
        "features": width,
        "where": f"{graph.name}, {width} features",
        "mean_row": float(degrees.mean()),
        "deviation": float(degrees.std() / max(degrees.mean(), 1e-9)),
        "complete": len(seconds) == len(plans),
        "ours": str(ours),
        "ours_seconds": seconds[ours],
        "best": str(best),
        "best_seconds": seconds[best],
        "theirs": {word: seconds[plan] for word, plan in theirs.items() if plan in seconds},
    }


def timed(task: Task, plans: Iterable[CpuPlan], budget: float, pause: Callable[[float], None]) -> dict[CpuPlan, float]:
    """Seconds of a call by plan, interleaved for ``budget`` seconds after all have run, and have their kernels."""
    plans, begin = list(plans), time.perf_counter()
    first = time_plans(task, plans, begin + PREPARING, rounds=FEWEST_ROUNDS)
    pause(time.perf_counter() - begin)
    again = time_plans(task, list(first), time.perf_counter() + budget)
    return {plan: min(seconds, again.get(plan, seconds)) for plan, seconds in first.items()}


def _decisions() -> list[Decision]:
    return [Decision(parallel, balanced) for parallel in (False, True) for balanced in (False, True)]


def regret(cell: Mapping, seconds: float) -> float:
    """How much longer than the best that was measured."""
    return seconds / cell["best_seconds"] - 1


def rules() -> dict[str, Callable[[Mapping], float | None]]:
    """The seconds of each rule in a cell, by name; those of a bound by the bound."""

    def theirs(bound: float) -> Callable[[Mapping], float | None]:
        return lambda cell: cell["theirs"].get(str(decided(cell["features"], cell["deviation"], bound)))

    return {OURS: lambda cell: cell["ours_seconds"]} | {f"{bound:g}": theirs(bound) for bound in BOUNDS}


def summarise(cells: Sequence[Mapping]) -> dict:
    """Mean and worst regret of ours and of theirs at each bound, over cells in which everything was measured."""
    whole = [cell for cell in cells if cell["complete"]]
    found = {}
    for name, seconds_of in rules().items():
        regrets = [regret(cell, seconds) for cell in whole if (seconds := seconds_of(cell)) is not None]
        if regrets:
            found[name] = {"mean": statistics.fmean(regrets), "worst": max(regrets), "cells": len(regrets)}
    best = min((name for name in found if name != OURS), key=lambda name: found[name]["mean"], default=None)
    return {"cells": len(whole), "left_out": len(cells) - len(whole), "regrets": found, "best_bound": best, "wrong": []}


def sheets(cells: Sequence[Mapping]) -> list[Sheet]:
    """What is chosen in each cell, and the mean regrets."""
    summary = summarise(cells)
    bound = float(summary["best_bound"] or "inf")
    rows = []
    for cell in cells:
        decision = str(decided(cell["features"], cell["deviation"], bound))
        theirs = cell["theirs"].get(decision)
        rows.append(
            [
                cell["graph"],
                str(cell["features"]),
                f"{cell['mean_row']:.1f}",
                f"{cell['deviation']:.1f}",
                decision,
                cell["ours"],
                cell["best"],
                report.milliseconds(cell["best_seconds"]),
                report.percent(None if theirs is None else regret(cell, theirs)),
                report.percent(regret(cell, cell["ours_seconds"])),
            ]
        )
    headings = ["graph", "features", "mean row", "deviation", "theirs", "ours", "best", "ms", "regret", "of ours"]
    note = (
        f"PR, SR: parallel and sequential reduction; WB, RB: equally many non-zeros, or rows. Theirs: parallel up to "
        f"{PARALLEL_UP_TO} features, and WB from a deviation above {bound:g}, the best bound in hindsight. Deviation: "
        "of the lengths of rows, over their mean. Best: of all plans that are worth trying."
    )
    found = [Sheet("What is chosen", headings, rows, notes=[note])]
    names = {OURS: "our cost model", "inf": f"{LIBRARY}: never WB", "0": "always WB"}
    rows = [
        [names.get(name, f"WB above {name}"), report.percent(each["mean"]), report.percent(each["worst"])]
        for name, each in summary["regrets"].items()
    ]
    note = (
        f"Over {summary['cells']} cells; {summary['left_out']} others lack a plan that could not be measured in time."
    )
    found.append(Sheet("Regret by rule", ["rule", "mean", "worst"], rows, notes=[note]))
    return found


def panels(cells: Sequence[Mapping]) -> report.Panels:
    """The best over what is chosen, by graph: 1 where nothing is better."""
    bound = float(summarise(cells)["best_bound"] or "inf")
    found: dict[str, dict[str, list]] = {}
    for cell in cells:
        lines = found.setdefault(cell["graph"], {})
        chosen = cell["theirs"].get(str(decided(cell["features"], cell["deviation"], bound)))
        for label, seconds in (("ours", cell["ours_seconds"]), ("Huang et al.", chosen)):
            if seconds is not None:
                lines.setdefault(label, []).append((cell["features"], cell["best_seconds"] / seconds))
    return found
