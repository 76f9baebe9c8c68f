"""A GraphSAGE training epoch with and without the backend: ``python -m benchmarks.graphsage``.

Whole steps (forward, loss, backward, Adam) on a generated graph, under DGL and PyG. The two variants take turns of
a few epochs in one process, so a backend whose threads disturb the framework's shows it here.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from rich.console import Console
from rich.table import Table

import gnn_sparse_backend as gsb
from benchmarks import cli, machine
from benchmarks.report import print_machine
from benchmarks.timing import Timing
from gnn_sparse_backend.integrations import reset_status
from models import data

FRAMEWORKS = {"dgl": "dgl", "pyg": "torch_geometric"}
# name: (our backend, gsb.reuse_memory())
VARIANTS = {
    "framework": (False, False),
    "backend": (True, False),
    "framework, reused memory": (False, True),
    "backend, reused memory": (True, True),
}
EPOCHS_PER_TURN = 4
MIN_TURNS = 2


class Training:
    """Full-batch training of one model; ``epoch()`` is one step, and keeps its loss in ``losses``.

    The random state is set at each epoch, so that both variants draw the same dropout masks.
    """

    def __init__(self, framework: str, dataset: data.Dataset, *, hidden: int, layers: int, dropout: float, seed: int,
                 backend: bool, reuse: bool = False) -> None:
        module = importlib.import_module(f"models.sage_{framework}")
        torch.manual_seed(seed)
        self._model = module.SAGE(dataset.features.shape[1], hidden, dataset.num_classes, layers, dropout)
        self._graph = module.graph_of(dataset)
        self._dataset = dataset
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.01)
        self._train = dataset.train.nonzero().squeeze(1)
        self._labels = dataset.labels[self._train]
        self._seed = seed
        self._context: Callable = (lambda: gsb.enabled(framework)) if backend else nullcontext
        self._reuse = reuse
        self.losses: list[float] = []

    def epoch(self) -> None:
        torch.manual_seed(self._seed + len(self.losses))
        self._optimizer.zero_grad()
        logits = self._model(self._graph, self._dataset.features)
        loss = torch.nn.functional.cross_entropy(logits[self._train], self._labels)
        loss.backward()
        self._optimizer.step()
        self.losses.append(loss.item())

    def turn(self, epochs: int) -> list[float]:
        """Seconds of each of so many epochs, after one that is not timed: switching the backend forgets its graphs,
        which a user who switches it on once does not pay again."""
        seconds = []
        gsb.reuse_memory(self._reuse)
        with self._context():
            self.epoch()
            for _ in range(epochs):
                begin = time.perf_counter()
                self.epoch()
                seconds.append(time.perf_counter() - begin)
        gsb.reuse_memory(False)
        return seconds


def measure(framework: str, dataset: data.Dataset, *, hidden: int, layers: int, dropout: float, seed: int,
            budget: float) -> dict:
    """One framework and depth: ``{"timings": {variant: ...}, "ratio": framework over backend, ...}``, in seconds.

    ``ratio_reused`` compares the two with ``gsb.reuse_memory()``, ``ratio_all`` the backend with it to the plain framework.

    ``loss_difference`` is the largest relative difference of the two variants' losses over their first five epochs.
    """
    variants = {name: Training(framework, dataset, hidden=hidden, layers=layers, dropout=dropout, seed=seed,
                               backend=backend, reuse=reuse) for name, (backend, reuse) in VARIANTS.items()}
    first = {}
    samples: dict[str, list[float]] = {name: [] for name in variants}
    start = time.perf_counter()
    for name, training in variants.items():
        begin = time.perf_counter()
        training.turn(0)
        first[name] = time.perf_counter() - begin
    turns = 0
    while turns < MIN_TURNS or time.perf_counter() - start < budget:
        # the two take turns, and take turns at beginning
        for name in list(VARIANTS) if turns % 2 == 0 else list(VARIANTS)[::-1]:
            samples[name] += variants[name].turn(EPOCHS_PER_TURN)
        turns += 1
    timings = {name: Timing.of(seconds) for name, seconds in samples.items()}
    pairs = list(zip(*(training.losses for training in variants.values())))[:5]
    return {
        "framework": framework, "layers": layers, "hidden": hidden,
        "timings": {name: timing.to_dict() | {"first_epoch": first[name]} for name, timing in timings.items()},
        "ratio": timings["framework"].median / timings["backend"].median,
        "ratio_reused": timings["framework, reused memory"].median / timings["backend, reused memory"].median,
        "ratio_all": timings["framework"].median / timings["backend, reused memory"].median,
        "loss_difference": max(abs(a - b) / abs(a) for a, *others in pairs for b in others),
    }


def print_report(report: dict, console: Console) -> None:
    """The table of epochs, and how often the backend's kernels ran."""
    print_machine(report["machine"], console)
    console.print(report["dataset"])
    table = Table(title="GraphSAGE training epoch, whole step, medians in ms (quartiles)", title_justify="left")
    for heading in ("framework", "layers", *VARIANTS, "loss difference"):
        table.add_column(heading, justify="left" if heading == "framework" else "right")
    ratios = Table(title="How many times faster", title_justify="left")
    for heading in ("framework", "layers", "backend over framework", "the same, both with reused memory",
                    "backend with reused memory over plain framework"):
        ratios.add_column(heading, justify="left" if heading == "framework" else "right")
    for row in report["rows"]:
        cells = [f"{t['median'] * 1e3:.0f} ({t['lower'] * 1e3:.0f} to {t['upper'] * 1e3:.0f})"
                 for t in (row["timings"][name] for name in VARIANTS)]
        table.add_row(row["framework"], str(row["layers"]), *cells, f"{row['loss_difference']:.1e}")
        colored = [f"[{'green' if r >= 1 else 'red'}]{r:.2f}[/]"
                   for r in (row["ratio"], row["ratio_reused"], row["ratio_all"])]
        ratios.add_row(row["framework"], str(row["layers"]), *colored)
    console.print(ratios)
    console.print(table)
    console.print(gsb.status())


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=120.0)
    parser.add_argument("--frameworks", nargs="+", choices=tuple(FRAMEWORKS), default=list(FRAMEWORKS))
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
    """Run, print the table, write ``graphsage.json``. 1 if no framework is installed, else 0."""
    options = arguments(argv)
    cli.set_threads(options.threads)
    cli.quiet_libraries()
    console = Console()
    dataset = data.load("generated", "", nodes=options.nodes, edges=options.edges, seed=options.seed)
    installed = []
    for framework in options.frameworks:
        if importlib.util.find_spec(FRAMEWORKS[framework]) is None:
            console.print(f"[yellow]{framework} skipped:[/] {FRAMEWORKS[framework]} is not installed")
        else:
            installed.append(framework)
    description = machine.describe(options.threads)
    reset_status()
    cells = [(framework, layers) for framework in installed for layers in options.layers]
    rows = []
    for framework, layers in cells:
        with console.status(f"{framework}, {layers} layers"):
            rows.append(measure(framework, dataset, hidden=options.hidden, layers=layers, dropout=options.dropout,
                                seed=options.seed, budget=options.budget / len(cells)))
    report = {"machine": description, "dataset": str(dataset), "rows": rows,
              "status": gsb.status().to_dict()}
    print_report(report, console)
    console.print(f"written: {machine.write_json(options.out / 'graphsage.json', report)}")
    return 0 if rows else 1


if __name__ == "__main__":
    raise SystemExit(main())
