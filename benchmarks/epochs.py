"""Training epochs of unchanged networks, eager and compiled: ``python -m benchmarks.epochs``.

Networks of the frameworks' own layers (GraphSAGE, GCN, GAT, GIN, RGCN) with dropout between them: whole steps of
forward, loss, backward and Adam, on a full graph, on neighbour-sampled batches, and on Cora, in float32 and under
autocast to bfloat16. The framework alone stands beside the framework with our allocator (`gsb.reuse_memory`), which is
what the backend is measured against, and both eager and compiled by ``torch.compile``. All take turns in one process.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from rich.console import Console

from benchmarks.layers.epochs.networks import KINDS
from benchmarks.layers.epochs.training import SampledTraining, Training
from benchmarks.operators.work import NOTHING
from benchmarks.support import cells, cli, machine, merging, reasons, report, roofline, summary
from benchmarks.support.budget import Budget
from benchmarks.support.reasons import Evidence
from benchmarks.support.turns import Switched, in_turns
from models import data
from models.dataset import DataError, Dataset

ALONE, PEER, OURS = "framework", "same allocator", "backend"
COMPILED_PEER, COMPILED = "framework, compiled", "backend, compiled"
# name: (our backend, gsb.reuse_memory(), torch.compile)
VARIANTS = {
    ALONE: (False, False, False),
    PEER: (False, True, False),
    OURS: (True, True, False),
    COMPILED_PEER: (False, True, True),
    COMPILED: (True, True, True),
}
RATIOS = {
    "alone": (ALONE, OURS, "than framework alone"),
    "same": (PEER, OURS, "than same allocator"),
    "compiled": (OURS, COMPILED, "compiled than eager"),
    "both": (COMPILED_PEER, COMPILED, "both compiled"),
}
PRECISIONS = ("float32", "bfloat16")
PARTS = ("full", "sampled", "cora")
# Timed epochs of a turn, behind one that is timed apart: between turns the backend forgets what it derived of a graph,
# and memory takes some epochs to settle.
CALLS, TURNS, COMPARED = 3, 2, 10


@dataclass(frozen=True)
class Place:
    """A cell. precision: bfloat16 is autocast. part: one of ``PARTS``."""

    framework: str
    kind: str
    precision: str
    part: str

    def __str__(self) -> str:
        return f"{self.framework}, {self.kind}, {self.precision}" + ("" if self.part == "full" else f", {self.part}")


def measure(
    place: Place,
    dataset: Dataset,
    options: argparse.Namespace,
    limits: Mapping[str, roofline.Roofline],
    budget: float,
) -> dict:
    """One cell, as plain values, times in seconds. ``loss_difference``: the largest relative difference of our losses
    from the framework's in the first epochs, both eager; None where these cannot be repeated.
    """
    torch._dynamo.reset()
    sampled = place.part == "sampled"
    names = [
        name
        for name, (backend, _, compiled) in VARIANTS.items()
        if not (compiled and (sampled or options.eager)) and (backend or not options.ours)
    ]
    settings = {
        "hidden": options.hidden,
        "dropout": options.dropout,
        "seed": options.seed,
        "kind": place.kind,
        "autocast": place.precision != "float32",
    }
    settings |= (
        {"fanouts": options.fanouts, "batch_size": options.batch_size, "batches": options.batches}
        if sampled
        else {"layers": options.layers}
    )
    variants: dict[str, Training] = {}
    first: dict[str, float] = {}
    wrong: dict[str, str] = {}
    counted = 0, {}
    for name in names:
        backend, reuse, compiled = VARIANTS[name]
        switches = {"backend": backend, "reuse": reuse} | ({} if sampled else {"compiled": compiled})
        make = SampledTraining if sampled else Training
        training = make(place.framework, dataset, **settings, **switches)
        call = Switched(training.epoch, training.switched)
        try:
            if name == OURS:
                (_, first[name]), *counted = reasons.count_calls(place.framework, call.first)
            else:
                first[name] = call.first()[1]
        except Exception as error:  # one variant's failure is a result, and must not cost the others theirs
            wrong[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            variants[name] = training
    calls = {name: Switched(training.epoch, training.switched) for name, training in variants.items()}
    timed = in_turns(calls, budget_s=budget, turn_s=0.0, calls=options.calls, min_turns=options.turns)
    timings = {
        name: turns.timing.to_dict() | {"first_epoch": first[name], "opening": turns.opening}
        for name, turns in timed.items()
    }
    median = {name: turns.timing.median for name, turns in timed.items()}
    rated = cells.rate(
        str(place),
        timings,
        (OURS, COMPILED),
        limits[place.precision],
        next((training.work() for training in variants.values()), NOTHING),
        wrong=wrong,
        evidence=Evidence(ours=counted[0], fallbacks=counted[1]),
    )
    return {
        **asdict(place),
        "graph": dataset.name,
        **rated,
        "ratios": {key: _ratio(median, above, below) for key, (above, below, _) in RATIOS.items()},
        "loss_difference": _loss_difference(variants)
        if OURS in variants and PEER in variants and variants[PEER].repeats
        else None,
    }


def _ratio(median: Mapping[str, float], above: str, below: str) -> float | None:
    return median[above] / median[below] if above in median and below in median else None


def _loss_difference(variants: Mapping[str, Training]) -> float:
    both = zip(variants[PEER].losses[:COMPARED], variants[OURS].losses)
    return float(np.max([abs(theirs - ours) / abs(theirs) for theirs, ours in both]))  # NaN if one of them is


def places_of(options: argparse.Namespace, frameworks: Sequence[str]) -> Iterator[Place]:
    for part, framework in itertools.product(options.parts, frameworks):
        # samplers give no relations
        kinds = [kind for kind in options.kinds if part != "sampled" or kind != "rgcn"]
        for kind, precision in itertools.product(kinds, options.precisions):
            yield Place(framework, kind, precision, part)


def summarise(measured: Sequence[dict]) -> dict:
    """``summary.summarise``, and the geometric mean of each ratio."""
    means = {key: summary.mean_or_none(cell["ratios"][key] for cell in measured) for key in RATIOS}
    return summary.summarise(measured, ("framework", "kind", "precision", "part")) | {"ratios": means}


def show(results: dict, console: Console) -> None:
    """The tables of epochs and of ratios."""
    report.print_head(results, console)
    for described in results["datasets"].values():
        console.print(described)
    left = ("network",)
    times = report.table("Epoch, medians in ms", left, (*VARIANTS, "loss difference"))
    ratios = report.table(
        "How many times faster", left, (*(words for *_, words in RATIOS.values()), *report.ROOFLINE_HEADINGS)
    )
    for cell in results["cells"]:
        medians = (cell["timings"].get(name) for name in VARIANTS)
        difference = cell["loss_difference"]
        times.add_row(
            cell["where"],
            *(report.MISSING if timing is None else f"{timing['median'] * 1e3:.3g}" for timing in medians),
            report.MISSING if difference is None else f"{difference:.1e}",
        )
        ratios.add_row(
            cell["where"], *(report.ratio(cell["ratios"][key]) for key in RATIOS), *report.roofline_columns(cell)
        )
    console.print(times)
    console.print(ratios)
    console.print(f"{report.ROOFLINE_NOTE} The better of our two variants.")
    means = ", ".join(
        f"{words} {report.ratio(results['summary']['ratios'][key])}" for key, (*_, words) in RATIOS.items()
    )
    console.print(f"Geometric means: {means}")
    report.print_summary(results["summary"], console)


def panels(results: dict) -> dict:
    """A panel for each framework and part, a line for each ratio, over the networks in float32."""
    found: dict = {}
    for cell in results["cells"]:
        if cell["precision"] == "float32":
            lines = found.setdefault(f"{cell['framework']}, {cell['part']}", {})
            for key, (*_, words) in RATIOS.items():
                if cell["ratios"][key] is not None:
                    lines.setdefault(words, []).append((cell["kind"], cell["ratios"][key]))
    return found


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=1200.0)
    parser.add_argument("--frameworks", nargs="+", choices=tuple(cli.FRAMEWORKS), default=list(cli.FRAMEWORKS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of layers")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--eager", action="store_true", help="leave out what torch.compile makes")
    parser.add_argument("--ours", action="store_true", help="leave the framework without the backend out")
    parser.add_argument("--calls", type=cli.positive_int, default=CALLS, help="timed epochs of a turn")
    parser.add_argument("--turns", type=cli.positive_int, default=TURNS, help="turns of each variant, at least")
    parser.add_argument("--layers", type=cli.positive_int, default=3)
    parser.add_argument("--hidden", type=cli.positive_int, default=128)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--nodes", type=cli.positive_int, default=140_000)
    parser.add_argument("--edges", type=cli.positive_int, default=1_700_000)
    parser.add_argument("--batches", type=cli.positive_int, default=20, help="sampled batches of an epoch, at most")
    parser.add_argument("--batch-size", type=cli.positive_int, default=1024, help="training nodes of a sampled batch")
    parser.add_argument(
        "--fanouts", nargs="+", type=cli.positive_int, default=[10, 10, 10], help="sampled neighbours, by layer"
    )
    cli.add_append(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.nodes, options.edges = min(options.nodes, 10_000), min(options.edges, 100_000)
        options.kinds, options.parts, options.eager = options.kinds[:2], ["full"], True
        options.budget = min(options.budget, 20.0)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``epochs.json`` and ``.png``. 1 if no framework is installed, else 0."""
    options = arguments(argv)
    console = cli.start(options)
    installed = cli.installed(options.frameworks, console)
    if not installed:
        console.print("[red]nothing to run[/]")
        return 1
    path = options.out / "epochs.json"
    before = merging.read(path) if options.append else None
    generated = data.load("generated", "", nodes=options.nodes, edges=options.edges, seed=options.seed)
    datasets = {"generated": generated}
    measured_limits = roofline.measure(options.threads)
    limits = {
        "float32": measured_limits,
        "bfloat16": roofline.with_products_in(measured_limits, torch.bfloat16)
        if "bfloat16" in options.precisions
        else measured_limits,
    }
    description = machine.describe(options.threads)
    places = list(places_of(options, installed))
    shares = Budget(options.budget, dict.fromkeys(places, 1.0))
    measured, skipped = [], {}
    results: dict = {}
    with report.progress(console, len(places)) as begin:
        for place in places:
            begin(str(place))
            seconds = shares.take(place)
            dataset = generated
            if place.part == "cora":
                try:
                    dataset = datasets.setdefault("cora", data.load("cora", place.framework))
                except DataError as error:
                    skipped[str(place)] = str(error)
                    continue
            measured.append(measure(place, dataset, options, limits, seconds))
            results = merging.merge(
                before,
                {
                    "machine": description,
                    "roofline": measured_limits.to_dict(),
                    "datasets": {name: str(dataset) for name, dataset in datasets.items()},
                    "cells": measured,
                    "skipped": skipped,
                },
            )
            results["summary"] = summarise(results["cells"])
            machine.write_json(path, results)  # a long run that is stopped leaves what it has measured
    for name, reason in skipped.items():
        console.print(f"[yellow]{name} skipped:[/] {reason}")
    if not measured:
        console.print("[red]nothing to run[/]")
        return 1
    show(results, console)
    report.finish(results, panels(results), "epochs", "network", options.out, console)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
