"""Compiles ahead of the first call what operators will run on a structure, measures plans, and remembers the
fastest.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..compiler.own_schedules import in_force
from ..ops.core.plans import database_of, forget_plans, problem_of, structure_fingerprint
from ..ops.core.plans_cuda import gpu_of
from ..ops.core.prepared import KINDS, PREPARED
from ..planner.candidates import trials
from ..runtime.type_names import check_dtype, type_name
from .calibrate_cpu import calibrate
from .calibrate_cuda import calibrate_gpu
from .precompile_operators import default_for, requested, settled
from .precompile_steps import Step
from .report import Report, Row
from .search_steps import not_reached, search_step
from .tune import compile_plans, problem_of_task, time_plans
from .tuning_tasks import Task

# Measuring the machine takes a second or two; compiling may take so much of what is left.
_CALIBRATION_SECONDS, _COMPILE_SHARE = 4.0, 0.5


def precompile_graphs(
    graphs: Iterable[tuple[str, Any]],
    features=64,
    ops: str | Iterable[str] | None = None,
    budget: str | float = "30s",
    *,
    dtype="float32",
    backward: bool = True,
    again: bool = False,
    progress: bool = True,
    search: bool = False,
) -> Report:
    """``gsb.precompile`` on pairs of a name and a graph, a ``RelGraph`` or ``Segments``. Each takes the operators that
    run on it.
    """
    features = settled(features)
    wanted, dtype = requested(ops, features), check_dtype(dtype)
    deadline = time.perf_counter() + seconds_of(budget)
    steps, work, names, unmet = [], [], {}, set(wanted or ())
    for name, structure in graphs:
        widths = _of_kind(wanted, features, name, type(structure))
        unmet.difference_update(widths)
        for operator, width in ((o, w) for o in widths for w in widths[o] if KINDS[o.on].count(structure)):
            step = Step(name, operator, structure, width, dtype, backward)
            steps.append(step)
            for task in step.tasks or (step,):
                if _key(task) not in names:  # graphs of one structure have one plan
                    names[_key(task)] = name
                    work.append((name, task))
    if unmet and names:
        operator = next(o for o in wanted if o in unmet)
        raise ValueError(f"{operator.name} runs on {KINDS[operator.on].words}, and none was given: leave it out of ops")
    report = Report([], list(dict.fromkeys(name for name, _ in work)))
    if search:
        _search(steps, deadline, again, progress, report)
        return report
    on_gpu = [step for step in steps if gpu_of(step.device)]
    try:
        with _without_formats_that_lost(on_gpu):
            if on_gpu:
                _make_ready(on_gpu, deadline, progress)
            _measure(work, deadline, again, progress, report)
        _run_again(steps, work, report)
    except KeyboardInterrupt:
        report.interrupted = True
    for name, task in work[len(report.rows) :]:
        report.rows.append(_row(name, task, dtype))
    compiled = {_key(task) for step in steps if step.ready for task in step.tasks or (step,)}
    for (_, task), row in zip(work, report.rows):
        if row.state == "not reached" and _key(task) in compiled:
            row.state = "compiled"
    return report


def _of_kind(wanted, features, name: str, kind: type) -> dict:
    """The operators that run on structures of a kind, and their widths."""
    if wanted is None:
        return default_for(kind, features)
    found = {operator: widths for operator, widths in wanted.items() if operator.on is kind}
    if not found:
        raise ValueError(
            f"{name} is {KINDS[kind].words}, on which {next(iter(wanted)).name} does not run: choose from "
            + ", ".join(operator.name for operator in PREPARED.values() if operator.on is kind)
        )
    return found


def seconds_of(budget: str | float) -> float:
    """``"30s"``, ``"500ms"``, ``"2m"``, ``"1h"`` or a number of seconds. Raises ValueError that quotes what is
    neither.
    """
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


def _measure(work: list[tuple[str, Task | Step]], deadline: float, again: bool, progress: bool, report: Report) -> None:
    # what is measured by a user's schedule says nothing of the package's own
    tasks = [task for _, task in work if isinstance(task, Task) and not in_force.schedules]
    wanted = [task for task in tasks if again or _known(task) is None]
    others = [step for _, step in work if isinstance(step, Step) and not step.ready]
    with _bar(progress, len(work)) as say:
        for device in dict.fromkeys(task.graph.device for task in wanted):
            _know(device, deadline, say)
        now = time.perf_counter()
        if (wanted or others) and now < deadline:
            # all at once, the first ones first: what is not reached is compiled where it is measured
            say("compiling", 0)
            compile_plans(
                [*others, *wanted],
                now + (_COMPILE_SHARE if wanted else 1.0) * (deadline - now),
                lambda task: say(_in_words(task.name, task), 1) if isinstance(task, Step) else None,
            )
        left, done = len(wanted), {step for step in others if step.ready}  # which the bar has counted
        for name, task in work:
            say(_in_words(name, task), 0)
            if isinstance(task, Step):
                if not task.ready and time.perf_counter() < deadline:
                    task.run()
                report.rows.append(_row(name, task, task.dtype))
            else:
                report.rows.append(_tune(name, task, deadline, left, again))
                left -= task in wanted
            say(_in_words(name, task), task not in done)


def _know(device: torch.device, deadline: float, say: Callable[[str, int], None]) -> None:
    """Measure a machine of which nothing is known, if there is time."""
    known = database_of(device)
    if not known.calibrated and deadline - time.perf_counter() > _CALIBRATION_SECONDS:
        say(f"measuring {known.machine}" if gpu_of(device) else "measuring this machine", 0)
        calibrate_gpu(device) if gpu_of(device) else calibrate()


def _search(steps: list[Step], deadline: float, again: bool, progress: bool, report: Report) -> None:
    """Search the kernels of each step in its share of what is left of the budget, and make the users' own calls by what
    was found. Without any budget no search, and each call runs once by what is predicted.
    """
    on_gpu = next((step for step in steps if gpu_of(step.device)), None)
    if on_gpu is not None:
        raise ValueError(
            f"search is of plans on a CPU, and {on_gpu.name} is on {on_gpu.device}: leave search out, which measures "
            "all plans of a GPU"
        )
    without, seen = time.perf_counter() >= deadline, set[Any]()
    reached: list[Step] = []
    try:
        with _bar(progress, len(steps)) as say:
            if steps:
                _know(steps[0].device, deadline, say)
            for number, step in enumerate(steps):
                now = time.perf_counter()
                if now >= deadline and not without:
                    break
                reached.append(step)
                share = now + (deadline - now) / (len(steps) - number)
                say(f"{step.name}: {step.words}", 0)
                report.rows += search_step(step, share, again, seen)
                say(f"{step.name}: {step.words}", 1)
    except KeyboardInterrupt:
        report.interrupted = True
        del reached[-1:]
    report.rows += [not_reached(step) for step in steps[len(reached) :]]


def _tune(name: str, task: Task, deadline: float, left: int, again: bool) -> Row:
    """Measure one task in its share of what is left of the budget, and keep what was found."""
    known, row = database_of(task.graph.device), _row(name, task, task.dtype)
    record = None if again else _known(task)
    now = time.perf_counter()
    if record is None and in_force.schedules:
        row.state = "not measured: a schedule of yours is in force"
        return row
    if record is None and now >= deadline:
        return row
    row.state = "known"
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


def _row(name: str, task: Task | Step, dtype: torch.dtype) -> Row:
    """The row of what was not reached yet."""
    if isinstance(task, Step):
        return Row(name, task.words, task.width, type_name(dtype), "not reached", tuned=False)
    return Row(name, task.name, task.features, type_name(dtype), "not reached")


def _in_words(name: str, task: Task | Step) -> str:
    row = _row(name, task, task.dtype)
    return f"{name}: {row.op}, {row.features} features"


def _make_ready(steps: list[Step], deadline: float, progress: bool) -> None:
    """Compile what steps on a GPU run by the plans they have now, several at a time, and run each once; those that were
    in time are ready.
    """
    with _bar(progress, len(steps)) as say:
        say("compiling", 0)
        compile_plans(
            [task for step in steps for task in step.tasks or (step,)],
            deadline,
            plans=lambda problem: trials(problem)[:1],
        )
        for step in steps:
            if not step.ready and time.perf_counter() < deadline:
                step.run()
            say("compiling", 1)


def _run_again(steps: list[Step], work: list[tuple[str, Task | Step]], report: Report) -> None:
    """Make the users' own calls by the plans that are known in the end: the next ones compile nothing, and on a GPU
    make no format and wait for nothing. Those that have no plan yet, and were not made ready, are left out.
    """
    planned = {_key(task) for (_, task), row in zip(work, report.rows) if row.plan is not None}
    chosen = any(step.tasks for step in steps)  # plans, by which others run too, and formats that were let go
    for step in steps:
        if (step.ready and chosen) or (
            not step.ready and step.tasks and all(_key(task) in planned for task in step.tasks)
        ):
            step.run()


@contextmanager
def _without_formats_that_lost(steps: list[Step]) -> Iterator[None]:
    """Let go in the end of the formats that graphs on a GPU have got meanwhile: those of plans that lost are not wanted
    again.
    """
    before = {id(task.graph.facts): (task.graph, set(task.graph.facts)) for step in steps for task in step.tasks}
    try:
        yield
    finally:
        for graph, kept in before.values():
            for fact in graph.facts.keys() - kept:
                graph.facts.pop(fact, None)
            graph.plans.clear()
            graph.calls.clear()


def _key(task: Task | Step) -> tuple:
    """What a plan depends on; what makes a step without one."""
    if isinstance(task, Step):
        return task.operator, id(task.structure), task.width, task.dtype
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
