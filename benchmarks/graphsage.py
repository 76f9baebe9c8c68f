"""A GraphSAGE training epoch with and without the backend: ``python -m benchmarks.graphsage``.

Whole steps (forward, loss, backward, Adam) on a generated graph, under DGL and PyG. The two variants take turns of
a few epochs in one process, so a backend whose threads disturb the framework's shows it here.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from rich.console import Console

import gnn_sparse_backend as gsb
from benchmarks import cells, cli, contenders, gpu, gpu_steps, machine, reasons, report, roofline, summary
from benchmarks.layer_work import sage_work
from benchmarks.layers import disagreement
from benchmarks.reasons import Evidence
from benchmarks.turns import Switched, in_turns
from benchmarks.work import Pattern
from models import data

# name: (our backend, gsb.reuse_memory())
VARIANTS = {
    "framework": (False, False),
    "backend": (True, False),
    "framework, reused memory": (False, True),
    "backend, reused memory": (True, True),
}
OURS = tuple(name for name, (backend, _) in VARIANTS.items() if backend)
EPOCHS_PER_TURN = 4


class Training:
    """Full-batch training of one model; ``epoch()`` is one step, and keeps its loss in ``losses``.

    The random state is set at each epoch, so that both variants draw the same dropout masks.
    """

    def __init__(self, framework: str, dataset: data.Dataset, *, hidden: int, layers: int, dropout: float, seed: int,
                 backend: bool, reuse: bool = False, device: torch.device | str = "cpu") -> None:
        module = importlib.import_module(f"models.sage_{framework}")
        torch.manual_seed(seed)
        self._model = module.SAGE(dataset.features.shape[1], hidden, dataset.num_classes, layers, dropout).to(device)
        dataset = moved(dataset, device)
        self._graph = module.graph_of(dataset)
        self._dataset = dataset
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.01)
        self._train = dataset.train.nonzero().squeeze(1)
        self._labels = dataset.labels[self._train]
        self._seed = seed
        self._framework, self._backend, self._reuse = framework, backend, reuse
        self.losses: list[float] = []

    def step(self) -> tuple[torch.Tensor]:
        """One step; the loss stays where it is, so that nobody waits for it."""
        self._optimizer.zero_grad()
        logits = self._model(self._graph, self._dataset.features)
        loss = torch.nn.functional.cross_entropy(logits[self._train], self._labels)
        loss.backward()
        self._optimizer.step()
        return (loss.detach(),)

    def epoch(self) -> None:
        torch.manual_seed(self._seed + len(self.losses))
        self.losses.append(self.step()[0].item())

    @contextmanager
    def switched(self) -> Iterator[None]:
        """The variant's switches, for the epochs inside."""
        gsb.reuse_memory(self._reuse)
        try:
            with gsb.enabled(self._framework) if self._backend else nullcontext():
                yield
        finally:
            gsb.reuse_memory(False)


def moved(dataset: data.Dataset, device: torch.device | str) -> data.Dataset:
    """The same on a device."""
    given = {field.name: getattr(dataset, field.name) for field in dataclasses.fields(dataset)}
    return dataclasses.replace(dataset, **{name: x.to(device) for name, x in given.items() if isinstance(x, torch.Tensor)})


def without_edges(dataset: data.Dataset) -> data.Dataset:
    """The same nodes alone."""
    return dataclasses.replace(dataset, edge_index=dataset.edge_index[:, :0])


def one_edge(dataset: data.Dataset) -> data.Dataset:
    """Two nodes and an edge, with as many features and classes."""
    everything, nothing = torch.ones(2, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)
    return data.Dataset("one edge", "", torch.tensor([[0], [1]]), dataset.features[:2],
                        torch.tensor([0, dataset.num_classes - 1]), everything, nothing, nothing)


def measure(framework: str, dataset: data.Dataset, pattern: Pattern, *, hidden: int, layers: int, dropout: float,
            seed: int, limits: roofline.Roofline, budget: float) -> dict:
    """One framework and depth, as plain values, times in seconds.

    ``ratio`` is the framework over the backend; ``ratio_reused`` compares the two with ``gsb.reuse_memory()``,
    ``ratio_all`` the backend with it to the plain framework. ``loss_difference`` is the largest relative difference
    of the variants' losses over their first five epochs.
    """
    def training(name: str, on: data.Dataset) -> Training:
        backend, reuse = VARIANTS[name]
        return Training(framework, on, hidden=hidden, layers=layers, dropout=dropout, seed=seed, backend=backend,
                        reuse=reuse)

    def switched(trained: Training) -> Switched:
        return Switched(trained.epoch, trained.switched)

    variants = {name: training(name, dataset) for name in VARIANTS}
    first = {name: switched(variant).first()[1] for name, variant in variants.items()}
    calls = {name: switched(variant) for name, variant in variants.items()}
    # an epoch of ours without edges and on one: what the message passing cannot change
    parts = {(name, part): switched(training(name, make(dataset)))
             for name in OURS for part, make in (("rest", without_edges), ("overhead", one_edge))}
    with variants[OURS[0]].switched():
        _, ours, fallbacks = reasons.count_calls(framework, variants[OURS[0]].epoch)
    timed = in_turns(calls | parts, budget_s=budget, turn_s=0.0, calls=EPOCHS_PER_TURN)
    timings = {name: timed[name].timing.to_dict() | {"first_epoch": first[name], "opening": timed[name].opening}
               for name in VARIANTS}
    median = {name: turns.timing.median for name, turns in timed.items()}
    evidence = {name: Evidence(median[name, "overhead"], median[name, "rest"], ours, fallbacks) for name in OURS}
    widths = [dataset.features.shape[1]] + [hidden] * (layers - 1) + [dataset.num_classes]
    work = sage_work(framework, pattern, widths, backward=True, input_gradient=False)
    rated = cells.rate(f"{framework}, {layers} layers", timings, OURS, limits, work, evidence=evidence)
    pairs = list(zip(*(variant.losses for variant in variants.values())))[:5]
    return {
        "framework": framework, "layers": layers, "hidden": hidden, **rated,
        "ratio": median["framework"] / median["backend"],
        "ratio_reused": median["framework, reused memory"] / median["backend, reused memory"],
        "ratio_all": median["framework"] / median["backend, reused memory"],
        "loss_difference": max(abs(a - b) / abs(a) for a, *others in pairs for b in others),
    }


RATIOS = {"ratio": "backend over framework", "ratio_reused": "the same, both with reused memory",
          "ratio_all": "backend with reused memory over plain framework"}


def show(results: dict, console: Console) -> None:
    """The tables of epochs and ratios."""
    report.print_head(results, console)
    console.print(results["dataset"])
    table = report.table("GraphSAGE training epoch, whole step, medians in ms (quartiles)", ("framework",),
                         ("layers", *VARIANTS, "loss difference"))
    ratios = report.table("How many times faster", ("framework",),
                          ("layers", *RATIOS.values(), *report.ROOFLINE_HEADINGS))
    for cell in results["cells"]:
        epochs = [f"{t['median'] * 1e3:.0f} ({t['lower'] * 1e3:.0f} to {t['upper'] * 1e3:.0f})"
                  for t in (cell["timings"][name] for name in VARIANTS)]
        table.add_row(cell["framework"], str(cell["layers"]), *epochs, f"{cell['loss_difference']:.1e}")
        ratios.add_row(cell["framework"], str(cell["layers"]), *(report.ratio(cell[key]) for key in RATIOS),
                       *report.roofline_columns(cell))
    console.print(ratios)
    console.print(table)
    console.print(f"{report.ROOFLINE_NOTE} The better of our two variants.")
    report.print_summary(results["summary"], console)


def panels(results: dict) -> dict:
    """A panel per framework, a line per ratio, over the number of layers."""
    found: dict = {}
    for cell in results["cells"]:
        lines = found.setdefault(cell["framework"], {})
        for key, label in RATIOS.items():
            lines.setdefault(label, []).append((cell["layers"], cell[key]))
    return found


def cells_on_gpu(options: argparse.Namespace, frameworks: Sequence[str], dataset: data.Dataset) -> Iterator[gpu_steps.Cell]:
    """The cells of ``--device cuda``: whole steps; what is compared is the first loss, of the same dropout masks."""
    for framework, layers in itertools.product(frameworks, options.layers):
        yield cell_on_gpu(framework, layers, options, dataset)


def cell_on_gpu(framework: str, layers: int, options: argparse.Namespace, dataset: data.Dataset) -> gpu_steps.Cell:
    def make(contender: str, device: torch.device) -> Switched:
        training = Training(framework, dataset, hidden=options.hidden, layers=layers, dropout=options.dropout,
                            seed=options.seed, backend=contender != framework, device=device)
        torch.manual_seed(options.seed)  # the same dropout masks for all
        return Switched(training.step, contenders.context_of(contender))

    return gpu_steps.Cell({"layers": layers}, tuple(contenders.names([framework])), make,
                          lambda answer, expected: disagreement(("loss",), answer, expected))


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=120.0, parents=[gpu.device_parser()])
    parser.add_argument("--frameworks", nargs="+", choices=tuple(cli.FRAMEWORKS), default=list(cli.FRAMEWORKS))
    parser.add_argument("--layers", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    options = parser.parse_args(argv)
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
        return gpu_steps.main("graphsage", "GraphSAGE training step", cells_on_gpu(options, installed, dataset),
                              contenders.names(installed), ("layers",), options.out, console)
    pattern = pattern_of(dataset)
    description = machine.describe(options.threads)
    limits = roofline.measure(options.threads)
    places = [(framework, layers) for framework in installed for layers in options.layers]
    measured = []
    with report.progress(console, len(places)) as begin:
        for framework, layers in places:
            begin(f"{framework}, {layers} layers")
            measured.append(measure(framework, dataset, pattern, hidden=options.hidden, layers=layers,
                                    dropout=options.dropout, seed=options.seed, limits=limits,
                                    budget=options.budget / len(places)))
    results = {"machine": description, "roofline": limits.to_dict(), "dataset": str(dataset), "cells": measured,
               "summary": summary.summarise(measured, ("framework", "layers"))}
    show(results, console)
    report.finish(results, panels(results), "graphsage", "layers", options.out, console)
    return 0


def pattern_of(dataset: data.Dataset) -> Pattern:
    sources, destinations = dataset.edge_index
    nodes = dataset.num_nodes
    return Pattern(nodes, nodes, dataset.num_edges, len(destinations.unique()), len(sources.unique()))


if __name__ == "__main__":
    raise SystemExit(main())
