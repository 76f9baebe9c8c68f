"""Compiles and measures, ahead of the first call, what operators will run on a graph, and remembers the fastest plans."""
from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..planner.candidates import trials
from .calibration import calibrate
from .cuda_calibration import calibrate_gpu
from .cuda_plans import gpu_of
from .graph import Graph
from .plans import database_of, forget_plans, problem_of, structure_fingerprint
from .report import Report, Row
from .row_order import expect_use
from .tunable import Task, check_dtype, check_features, check_op, tasks_of
from .tune import compile_plans, problem_of_task, time_plans
from .type_names import type_name

# Measuring the machine takes a second or two; compiling may take so much of what is left.
_CALIBRATION_SECONDS, _COMPILE_SHARE = 4.0, 0.5


def precompile_graphs(graphs: Iterable[tuple[str, Graph]], features=64, ops: Iterable[str] = ("sum",),
                      budget: str | float = "30s", *, dtype="float32", backward: bool = True, again: bool = False,
                      progress: bool = True) -> Report:
    """``gsb.precompile`` on pairs of a name and a graph."""
    ops = tuple(check_op(op) for op in ((ops,) if isinstance(ops, str) else ops))
    widths, dtype = check_features(features), check_dtype(dtype)
    deadline = time.perf_counter() + seconds_of(budget)
    tasks, names, steps = [], {}, []
    for name, graph in graphs:
        if not graph.num_edges:
            continue
        for task in tasks_of(graph, ops, widths, dtype, backward):
            expect_use(task.graph)
            if gpu_of(graph.device):
                steps += [[]] if task.direction == "forward" else []
                steps[-1].append(task)
            if _key(task) not in names:  # graphs of one structure have one plan
                names[_key(task)] = name
                tasks.append((name, task))
    report, ready = Report([], list(dict.fromkeys(name for name, _ in tasks))), []
    try:
        with _without_formats_that_lost(steps):
            if steps:
                _make_ready(steps, deadline, backward, progress, ready)
            _measure(tasks, deadline, again, progress, report)
        planned = {_key(task) for (_, task), row in zip(tasks, report.rows) if row.plan is not None}
        for step in steps:
            if step in ready or all(_key(task) in planned for task in step):
                _run(step, backward)
    except KeyboardInterrupt:
        report.interrupted = True
    for name, task in tasks[len(report.rows):]:
        report.rows.append(Row(name, task.name, task.features, type_name(dtype), "not reached"))
    compiled = {_key(task) for step in ready for task in step}
    for (_, task), row in zip(tasks, report.rows):
        if row.state == "not reached" and _key(task) in compiled:
            row.state = "compiled"
    return report


def seconds_of(budget: str | float) -> float:
    """``"30s"``, ``"500ms"``, ``"2m"``, ``"1h"`` or a number of seconds. Raises ValueError that quotes what is neither."""
    if isinstance(budget, (int, float)) and not isinstance(budget, bool):
        seconds = float(budget)
    else:
        match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(ms|s|m|min|h|)\s*", str(budget))
        if match is None:
            raise ValueError(f"budget {budget!r} is no time: write '30s', '500ms', '2m', or a number of seconds")
        seconds = float(match[1]) * {"ms": 1e-3, "s": 1, "": 1, "m": 60, "min": 60, "h": 3600}[match[2]]
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"budget {budget!r} is no time: it must be zero or more")
    return seconds


def _measure(tasks: list[tuple[str, Task]], deadline: float, again: bool, progress: bool, report: Report) -> None:
    wanted = [task for _, task in tasks if again or _known(task) is None]
    with _bar(progress, len(tasks)) as say:
        for device in dict.fromkeys(task.graph.device for task in wanted):
            known = database_of(device)
            if not known.calibrated and deadline - time.perf_counter() > _CALIBRATION_SECONDS:
                say(f"measuring {known.machine}" if gpu_of(device) else "measuring this machine", 0)
                calibrate_gpu(device) if gpu_of(device) else calibrate()
        now = time.perf_counter()
        if wanted and now < deadline:
            # all tasks at once, the first ones first: what is not reached is compiled where it is measured
            say("compiling", 0)
            compile_plans(wanted, now + _COMPILE_SHARE * (deadline - now))
        left = len(wanted)
        for name, task in tasks:
            say(f"{name}: {task.name}, {task.features} features", 0)
            report.rows.append(_tune(name, task, deadline, left, again))
            left -= task in wanted
            say(f"{name}: {task.name}, {task.features} features", 1)


def _tune(name: str, task: Task, deadline: float, left: int, again: bool) -> Row:
    """Measure one task in its share of what is left of the budget, and keep what was found."""
    known = database_of(task.graph.device)
    row = Row(name, task.name, task.features, type_name(task.dtype), "known")
    record = None if again else _known(task)
    now = time.perf_counter()
    if record is None and now >= deadline:
        row.state = "not reached"
        return row
    if record is None:
        problem = problem_of_task(task)
        plans = trials(problem)
        seconds = time_plans(task, plans, now + (deadline - now) / max(1, left))
        record = known.add(problem, structure_fingerprint(task.graph), seconds)
        forget_plans(task.graph)
        row.state = "measured" if len(seconds) == len(plans) else f"measured {len(seconds)} of {len(plans)}"
        row.rules = seconds[plans[0]]
    row.plan, row.seconds, row.plans = record.best, record.seconds[0][1], len(record.seconds)
    return row


def _make_ready(steps: list[list[Task]], deadline: float, backward: bool, progress: bool, ready: list) -> None:
    """Compile what steps on a GPU run by the plans they have now, several at a time, and run each once; those that were in time
    are added to ``ready``.
    """
    with _bar(progress, len(steps)) as say:
        say("compiling", 0)
        compile_plans([task for step in steps for task in step], deadline, plans=lambda problem: trials(problem)[:1])
        for step in steps:
            if time.perf_counter() < deadline:
                _run(step, backward)
                ready.append(step)
            say("compiling", 1)


def _run(step: list[Task], backward: bool) -> None:
    """Make the user's own call, and its gradients, by the plans that are known now: the next one compiles nothing, makes no format
    and waits for nothing.
    """
    for task in step:
        forget_plans(task.graph)  # another graph of the same structure may have been measured
    step[0].step(backward)


@contextmanager
def _without_formats_that_lost(steps: list[list[Task]]) -> Iterator[None]:
    """Let go in the end of the formats that graphs on a GPU have got meanwhile: those of plans that lost are not wanted again."""
    before = {id(task.graph.plans): (task.graph.plans, set(task.graph.plans)) for step in steps for task in step}
    try:
        yield
    finally:
        for plans, kept in before.values():
            for key in plans.keys() - kept:
                plans.pop(key, None)


def _key(task: Task) -> tuple:
    """What a plan depends on."""
    return structure_fingerprint(task.graph), task.graph.device, task.kind, task.features, task.dtype


def _known(task: Task):
    """The record of a task, if all its candidates have been measured."""
    graph = task.graph
    problem = problem_of(graph, task.kind, task.features, task.dtype)
    record = database_of(graph.device).find(problem, lambda: structure_fingerprint(graph))
    if record is None:
        return None
    return record if {plan for plan, _ in record.seconds}.issuperset(trials(problem_of_task(task))) else None


@contextmanager
def _bar(shown: bool, total: int) -> Iterator:
    """A progress bar on the error stream, gone at the end. Gives ``say(words, advance)``."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True, disable=not shown) as bar:
        task = bar.add_task("", total=total)
        yield lambda words, advance: bar.update(task, description=words, advance=advance)
