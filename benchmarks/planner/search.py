"""How good searched plans are: ``python -m benchmarks.planner.search``.

For every kernel, forward and backward, that the five operators run on structures to which nothing was fitted: the time
of every candidate, in turns, and from these the regret of the rules' plan, of the plan that is taken without a search
(rules, corrected by the cost model), of the least predicted, and of what ``gsb.precompile(..., search=True)`` finds in
a budget for each kernel. Regret is the time of a plan over that of the fastest of all candidates, minus one. What a
perfect search would show on the machine of the day is "noise": the fastest plan of one half of the rounds, judged by
the other half.

Kernels are compiled before, and what plans derive of a structure is made before, so that a budget is for measuring; a
search that has to compile is cut short by that. Each search starts with an empty database, and measures by itself. The
constants of the cost model are measured first. Plans that come close to the fastest, and those that were chosen, have
more turns: the least of few samples would make the luckiest of equal plans the best.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.planner.held_out import OPERATORS
from benchmarks.support import cli, graphs, machine, report
from gnn_sparse_backend.compiler.codegen import BuildError
from gnn_sparse_backend.planner.database import PlanDatabase, database
from gnn_sparse_backend.planner.decisions import Decision, decisions
from gnn_sparse_backend.planner.plan import Plan
from gnn_sparse_backend.runtime.timers import on_clock
from gnn_sparse_backend.tuning.calibrate_cpu import calibrate
from gnn_sparse_backend.tuning.halving import MOST_CALLS, SAMPLE_SECONDS
from gnn_sparse_backend.tuning.precompile_operators import operators_named
from gnn_sparse_backend.tuning.precompile_steps import Step
from gnn_sparse_backend.tuning.search import search

BUDGETS = (0.5, 2.0)
# Rounds of every candidate, and of those that come close to the fastest, with how close.
ROUNDS, FINAL_ROUNDS, CLOSE = 8, 60, 1.25
# Share of a kernel's time for the first rounds.
FIRST = 0.5
WAYS = ("rules", "taken", "predicted")
# A perfect search, as far as these times can tell: the fastest plan by every other round, in the rounds between.
NOISE = "noise"


class Rounds:
    """The least seconds of a call of every plan, by interleaved samples."""

    def __init__(self, decision: Decision, plans: Sequence[Plan], clock: Callable[[], float]) -> None:
        self.timer, self.clock = on_clock(clock), clock
        self.runs = {plan: (lambda plan=plan: decision.run(plan)) for plan in plans}
        first = {plan: self.timer(run, 1) for plan, run in self.runs.items()}
        self.halves = (first, dict(first))
        self.calls = {
            plan: max(1, min(MOST_CALLS, int(SAMPLE_SECONDS / max(taken, 1e-9)))) for plan, taken in first.items()
        }

    @property
    def least(self) -> dict[Plan, float]:
        even, odd = self.halves
        return {plan: min(even[plan], odd[plan]) for plan in even}

    @property
    def noise(self) -> float:
        """Regret of the fastest plan of one half of the rounds in the other half."""
        even, odd = self.halves
        return odd[min(even, key=even.__getitem__)] / min(odd.values()) - 1

    def take(self, plans: Sequence[Plan], most: int, seconds: float) -> None:
        """Sample the plans in at least two rounds and at most ``most``, for about so long."""
        end = self.clock() + seconds
        for turn in range(most):
            at, least = turn % len(plans), self.halves[turn % 2]
            for plan in [*plans[at:], *plans[:at]]:
                least[plan] = min(least[plan], self.timer(self.runs[plan], self.calls[plan]))
            if turn and self.clock() >= end:
                break


def measure_decision(
    decision: Decision,
    budgets: Sequence[float],
    seconds: float,
    scratch: Path,
    clock: Callable[[], float] = time.perf_counter,
) -> dict:
    """One kernel as plain values, times in seconds. seconds: of the candidates' rounds together."""
    predicted = decision.candidates()
    plans = []
    for plan in dict.fromkeys((*predicted, decision.plan)):
        try:
            decision.run(plan)
        except BuildError:
            continue
        plans.append(plan)
    measured = Rounds(decision, plans, clock)
    measured.take(plans, ROUNDS, FIRST * seconds)
    chosen = {
        "rules": plans[0],
        "taken": decision.plan,
        "predicted": min(predicted, key=predicted.__getitem__),
    }
    for budget in budgets:
        known = PlanDatabase(scratch / f"{time.monotonic_ns()}.json")
        chosen[f"{budget:g} s"] = search(decision, known, clock() + budget, clock).plan
    least = measured.least
    limit = CLOSE * min(least.values())
    finalists = [plan for plan in plans if plan in chosen.values() or least[plan] <= limit]
    measured.take(finalists, FINAL_ROUNDS, (1 - FIRST) * seconds)
    least = measured.least
    best = min(least, key=least.__getitem__)
    return {
        "kernel": decision.what,
        "candidates": len(plans),
        "best": str(best),
        "best_seconds": least[best],
        "plans": {way: str(plan) for way, plan in chosen.items()},
        "regret": {NOISE: measured.noise} | {way: least[plan] / least[best] - 1 for way, plan in chosen.items()},
        "seconds": {str(plan): taken for plan, taken in least.items()},
    }


def decisions_of(operator: str, structure: Any, width: Any, dtype: torch.dtype) -> list[Decision]:
    """The kernels of one call and its gradients, each plan's once."""
    (prepared,) = operators_named(operator)
    step = Step("", prepared, structure, width, dtype, True)
    step.run()
    with decisions() as told:
        step.run()
    return list({decision.key: decision for decision in reversed(told)}.values())[::-1]


def summarise(cells: Sequence[Mapping]) -> dict:
    """Mean and worst regret of every way, over all kernels and those of each operator."""
    groups = {"all": list(cells)}
    for cell in cells:
        groups.setdefault(cell["op"], []).append(cell)
    return {
        name: {
            way: {
                "mean": statistics.fmean(cell["regret"][way] for cell in group),
                "worst": max(cell["regret"][way] for cell in group),
            }
            for way in group[0]["regret"]
        }
        | {"kernels": len(group)}
        for name, group in groups.items()
        if group
    }


def places(operators: Sequence[str], quick: bool) -> Iterator[tuple[str, str, Any]]:
    """(operator, name of the structure, its recipe)."""
    for operator in operators:
        for name, recipe in OPERATORS[operator][0].items():
            if recipe.quick or not quick:
                yield operator, name, recipe


def run(
    operators: Sequence[str],
    budgets: Sequence[float],
    *,
    quick: bool,
    budget: float,
    threads: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
    clock: Callable[[], float] = time.perf_counter,
    begin: Callable[[str], None] = lambda cell: None,
    done: Callable[[dict], None] = lambda so_far: None,
) -> dict:
    """Measure everything; the report as plain values, times in seconds. budget: of all kernels together, without what
    prepares them; a kernel has the same share as every other.
    """
    description, cells, skipped = machine.describe(threads), [], {}
    wanted = list(places(operators, quick))
    # three kernels of a call, about
    share = budget / max(1, 3 * sum(len(OPERATORS[operator][1]) for operator, _, _ in wanted))

    def so_far() -> dict:
        return {
            "machine": description,
            "budgets": list(budgets),
            "cells": list(cells),
            "skipped": dict(skipped),
            "summary": summarise(cells),
        }

    with tempfile.TemporaryDirectory() as folder, database.using(PlanDatabase(Path(folder) / "plans.json")):
        begin("measuring this machine")
        calibrate(threads)
        for operator, name, recipe in wanted:
            try:
                structure = recipe.make(seed)
            except graphs.Unavailable as missing:
                skipped[name] = str(missing)
                continue
            for call, width in OPERATORS[operator][1]:
                begin(f"{name}: {call}, {width}")
                for decision in decisions_of(call, structure, width, dtype):
                    left = max(0.1, share - sum(budgets))
                    with torch.no_grad():
                        found = measure_decision(decision, budgets, left, Path(folder), clock)
                    cells.append({"graph": name, "op": operator, "call": call, "width": width, **found})
                    done(so_far())
            structure.release()
    return so_far()


def show(results: Mapping, console) -> None:
    """A row for each kernel, then the regrets."""
    console.print(machine.one_line(results["machine"]))
    if (warning := machine.busy(results["machine"])) is not None:
        console.print(f"[yellow]{warning}[/]")
    ways = (NOISE, *WAYS, *(f"{budget:g} s" for budget in results["budgets"]))
    table = report.table(
        "Regret of plans, %; budgets are for a kernel", ("structure", "call", "kernel"), ("best, µs", *ways, "plans")
    )
    for cell in results["cells"]:
        table.add_row(
            cell["graph"],
            f"{cell['call']} {cell['width']}",
            cell["kernel"],
            f"{1e6 * cell['best_seconds']:,.1f}",
            *(report.percent(cell["regret"][way]) for way in ways),
            str(cell["candidates"]),
        )
    console.print(table)
    table = report.table("Regret, mean and worst", ("operator",), ("kernels", *ways))
    for name, group in results["summary"].items():
        regrets = (f"{group[way]['mean']:.1%}, {group[way]['worst']:.0%}" for way in ways)
        table.add_row(name, str(group["kernels"]), *regrets)
    console.print(table)
    for name, reason in results["skipped"].items():
        console.print(f"[yellow]{name} skipped:[/] {reason}")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = cli.parser(__doc__.split("\n")[0], budget=900)
    cli.add_processor_time(parser)
    parser.add_argument("--operators", nargs="+", choices=tuple(OPERATORS), default=list(OPERATORS), metavar="OP")
    parser.add_argument(
        "--budgets", nargs="+", type=float, default=list(BUDGETS), metavar="S", help="of a search of one kernel"
    )
    options = parser.parse_args(argv)
    if options.quick:
        options.budget = min(options.budget, 60)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``planner-search.json``."""
    options = arguments(argv)
    console = cli.start(options)
    path = options.out / "planner-search.json"
    total = 1 + sum(len(OPERATORS[operator][1]) for operator, _, _ in places(options.operators, options.quick))
    with report.progress(console, total) as begin:
        results = run(
            options.operators,
            options.budgets,
            quick=options.quick,
            budget=options.budget,
            threads=options.threads,
            seed=options.seed,
            clock=cli.clock(options),
            begin=begin,
            done=lambda so_far: machine.write_json(path, so_far),
        )
    show(results, console)
    machine.write_json(path, results)
    console.print(f"written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
