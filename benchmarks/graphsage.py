"""A GraphSAGE training epoch with and without the backend: ``python -m benchmarks.graphsage``.

Whole steps (forward, loss, backward, Adam) on a generated graph, under DGL and PyG, on the full graph and on
neighbour-sampled batches. The two variants take turns of a few epochs in one process, so a backend whose threads
disturb the framework's shows it here.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence

import torch
from rich.console import Console

from benchmarks.layers import contenders, gpu_steps
from benchmarks.layers.epochs.training import SampledTraining, Training, one_edge, without_edges
from benchmarks.layers.layers import disagreement
from benchmarks.support import cells, cli, machine, reasons, report, roofline, summary
from benchmarks.support.gpu import device as gpu
from benchmarks.support.reasons import Evidence
from benchmarks.support.turns import Switched, in_turns
from models import data
from models.dataset import Dataset

# name: (our backend, gsb.reuse_memory())
VARIANTS = {
    "framework": (False, False),
    "backend": (True, False),
    "framework, reused memory": (False, True),
    "backend, reused memory": (True, True),
}
OURS = tuple(name for name, (backend, _) in VARIANTS.items() if backend)
EPOCHS_PER_TURN = 4
QUICK_BATCHES = 10


def measure(
    framework: str,
    layers: int,
    dataset: Dataset,
    options: argparse.Namespace,
    *,
    limits: roofline.Roofline,
    budget: float,
    sampled: bool,
) -> dict:
    """One framework and depth, as plain values, times in seconds.

    ``ratio`` is the framework over the backend; ``ratio_reused`` compares the two with ``gsb.reuse_memory()``,
    ``ratio_all`` the backend with it to the plain framework. ``loss_difference`` is the largest relative difference
    of the variants' losses over their first five epochs; None where these cannot be repeated. ``sampling``: median
    seconds of an epoch's sampling, 0 on the full graph.
    """
    settings = {"hidden": options.hidden, "dropout": options.dropout, "seed": options.seed}

    def training(name: str, on: Dataset) -> Training:
        backend, reuse = VARIANTS[name]
        if sampled:
            return SampledTraining(
                framework,
                on,
                fanouts=options.fanouts,
                batch_size=options.batch_size,
                batches=options.batches,
                backend=backend,
                reuse=reuse,
                **settings,
            )
        return Training(framework, on, layers=layers, backend=backend, reuse=reuse, **settings)

    def switched(trained: Training) -> Switched:
        return Switched(trained.epoch, trained.switched)

    variants = {name: training(name, dataset) for name in VARIANTS}
    first = {name: switched(variant).first()[1] for name, variant in variants.items()}
    calls = {name: switched(variant) for name, variant in variants.items()}
    # an epoch of ours without edges and on one: what the message passing cannot change
    makers: dict[str, Callable] = {} if sampled else {"rest": without_edges, "overhead": one_edge}
    parts = {(name, part): switched(training(name, make(dataset))) for name in OURS for part, make in makers.items()}
    with variants[OURS[0]].switched():
        _, ours, fallbacks = reasons.count_calls(framework, variants[OURS[0]].epoch)
    timed = in_turns(calls | parts, budget_s=budget, turn_s=0.0, calls=EPOCHS_PER_TURN)
    timings = {
        name: timed[name].timing.to_dict() | {"first_epoch": first[name], "opening": timed[name].opening}
        for name in VARIANTS
    }
    median = {name: turns.timing.median for name, turns in timed.items()}
    sampling = {name: statistics.median(variants[name].sampling) if sampled else 0.0 for name in VARIANTS}
    evidence = {
        name: Evidence(median.get((name, "overhead")), median.get((name, "rest")), ours, fallbacks) for name in OURS
    }
    rated = cells.rate(
        f"{framework}, {layers} layers" + (", sampled" if sampled else ""),
        timings,
        OURS,
        limits,
        variants[OURS[0]].work(),
        evidence=evidence,
    )
    pairs = list(zip(*(variant.losses for variant in variants.values())))[:5]
    return {
        "framework": framework,
        "layers": layers,
        "hidden": options.hidden,
        "batches": _batches(options) if sampled else "full graph",
        **rated,
        "ratio": median["framework"] / median["backend"],
        "ratio_reused": median["framework, reused memory"] / median["backend, reused memory"],
        "ratio_all": median["framework"] / median["backend, reused memory"],
        "loss_difference": max(abs(a - b) / abs(a) for a, *others in pairs for b in others)
        if variants[OURS[0]].repeats
        else None,
        "sampling": statistics.median(sampling.values()),
    }


RATIOS = {
    "ratio": "backend over framework",
    "ratio_reused": "the same, both with reused memory",
    "ratio_all": "backend with reused memory over plain framework",
}


def _batches(options: argparse.Namespace) -> str:
    """What an epoch of sampled batches is."""
    whole = options.batches is None or options.batches * options.batch_size >= options.nodes
    return (
        ("whole epoch" if whole else f"{options.batches} batches") + ", sampled " + "-".join(map(str, options.fanouts))
    )


def show(results: dict, console: Console) -> None:
    """The tables of epochs and ratios."""
    report.print_head(results, console)
    console.print(results["dataset"])
    table = report.table(
        "GraphSAGE training epoch (or as many batches as it says), whole steps, medians in ms (quartiles)",
        ("framework",),
        ("layers", "batches", *VARIANTS, "of it sampling", "loss difference"),
    )
    ratios = report.table(
        "How many times faster", ("framework",), ("layers", "batches", *RATIOS.values(), *report.ROOFLINE_HEADINGS)
    )
    for cell in results["cells"]:
        epochs = [
            f"{t['median'] * 1e3:.0f} ({t['lower'] * 1e3:.0f} to {t['upper'] * 1e3:.0f})"
            for t in (cell["timings"][name] for name in VARIANTS)
        ]
        table.add_row(
            cell["framework"],
            str(cell["layers"]),
            cell["batches"],
            *epochs,
            f"{cell['sampling'] * 1e3:.0f}",
            "–" if cell["loss_difference"] is None else f"{cell['loss_difference']:.1e}",
        )
        ratios.add_row(
            cell["framework"],
            str(cell["layers"]),
            cell["batches"],
            *(report.ratio(cell[key]) for key in RATIOS),
            *report.roofline_columns(cell),
        )
    console.print(ratios)
    console.print(table)
    console.print(f"{report.ROOFLINE_NOTE} The better of our two variants.")
    report.print_summary(results["summary"], console)


def panels(results: dict) -> dict:
    """A panel per framework, a line per ratio, over the number of layers, on the full graph."""
    found: dict = {}
    for cell in results["cells"]:
        if cell["batches"] != "full graph":
            continue
        lines = found.setdefault(cell["framework"], {})
        for key, label in RATIOS.items():
            lines.setdefault(label, []).append((cell["layers"], cell[key]))
    return found


def cells_on_gpu(options: argparse.Namespace, frameworks: Sequence[str], dataset: Dataset) -> Iterator[gpu_steps.Cell]:
    """The cells of ``--device cuda``: whole steps; what is compared is the first loss, of the same dropout masks."""
    for framework, layers in itertools.product(frameworks, options.layers):
        yield cell_on_gpu(framework, layers, options, dataset)


def cell_on_gpu(framework: str, layers: int, options: argparse.Namespace, dataset: Dataset) -> gpu_steps.Cell:
    def training(contender: str, device: torch.device | str) -> Training:
        return Training(
            framework,
            dataset,
            hidden=options.hidden,
            layers=layers,
            dropout=options.dropout,
            seed=options.seed,
            backend=contender != framework,
            device=device,
        )

    def make(contender: str, device: torch.device) -> Switched:
        trained = training(contender, device)
        torch.manual_seed(options.seed)  # the same dropout masks for all
        return Switched(trained.step, contenders.context_of(contender))

    return gpu_steps.Cell(
        {"layers": layers},
        tuple(contenders.names([framework])),
        make,
        lambda answer, expected: disagreement(("loss",), answer, expected),
        lambda contender: training(contender, "cpu").work(),
    )


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=120.0, parents=[gpu.device_parser()])
    parser.add_argument("--frameworks", nargs="+", choices=tuple(cli.FRAMEWORKS), default=list(cli.FRAMEWORKS))
    parser.add_argument(
        "--layers", nargs="*", type=cli.positive_int, default=[2, 3], help="of the models on the full graph"
    )
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument(
        "--batches",
        type=int,
        metavar="N",
        help="stop sampled epochs after N batches, which the tables then say; by default they are whole, with --quick "
        "of 10 "
        "batches; 0 for the full graph alone",
    )
    parser.add_argument("--batch-size", type=int, default=1024, help="training nodes of a sampled batch")
    parser.add_argument(
        "--fanouts", nargs="+", type=int, default=[10, 10], help="sampled neighbours of a node, by layer"
    )
    options = parser.parse_args(argv)
    if options.batches is None and options.quick:
        options.batches = QUICK_BATCHES
    if not options.layers and options.batches == 0:
        parser.error("--layers without a number and --batches 0 leave nothing to measure")
    if options.quick:
        options.layers, options.budget = options.layers[:1], min(options.budget, 30.0)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``graphsage.json`` and ``.png``. 1 if no framework is installed, else 0."""
    options = arguments(argv)
    console = cli.start(options)
    installed = cli.installed(options.frameworks, console)
    if not installed:
        console.print("[red]nothing to run[/]")
        return 1
    dataset = data.load("generated", "", nodes=options.nodes, edges=options.edges, seed=options.seed)
    if options.device == "cuda":
        return gpu_steps.main(
            "graphsage",
            "GraphSAGE training step",
            cells_on_gpu(options, installed, dataset),
            contenders.names(installed),
            ("layers",),
            options.out,
            console,
        )
    description = machine.describe(options.threads)
    limits = roofline.measure(options.threads)
    places = [(framework, layers, False) for framework in installed for layers in options.layers]
    if options.batches != 0:
        places += [(framework, len(options.fanouts), True) for framework in installed]
    measured = []
    with report.progress(console, len(places)) as begin:
        for framework, layers, sampled in places:
            begin(f"{framework}, {layers} layers" + (", sampled" if sampled else ""))
            measured.append(
                measure(
                    framework,
                    layers,
                    dataset,
                    options,
                    limits=limits,
                    budget=options.budget / len(places),
                    sampled=sampled,
                )
            )
            results = {
                "machine": description,
                "roofline": limits.to_dict(),
                "dataset": str(dataset),
                "cells": measured,
                "summary": summary.summarise(measured, ("framework", "layers")),
            }
            # a long run that is stopped leaves what it has measured
            machine.write_json(options.out / "graphsage.json", results)
    show(results, console)
    report.finish(results, panels(results), "graphsage", "layers", options.out, console)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
