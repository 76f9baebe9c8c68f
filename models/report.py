"""What came of the runs: a table, a JSON file, a plot."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from models.dataset import Dataset
from models.train import Config, Run, disagreement

LABELS = {"dgl": "DGL", "pyg": "PyG"}
MODELS = {"sage": "GraphSAGE", "rgcn": "RGCN"}
PACKAGES = {"dgl": "dgl", "pyg": "torch-geometric"}


def pairs(runs: Iterable[Run]) -> list[tuple[Run | None, Run | None]]:
    """The run without and the run with the backend of each framework, None where there is none."""
    by_framework: dict[str, dict[str, Run]] = {}
    for run in runs:
        by_framework.setdefault(run.framework, {})[run.backend] = run
    return [(each.get("off"), each.get("on")) for each in by_framework.values()]


def disagreements(runs: Iterable[Run]) -> list[str]:
    """A line for each framework whose two runs differ beyond rounding."""
    both = [(off, on) for off, on in pairs(runs) if off and on]
    return [f"{LABELS[off.framework]}: {what}" for off, on in both if (what := disagreement(off, on))]


def table(dataset: Dataset, runs: Sequence[Run], config: Config) -> Table:
    """Of every run: test accuracy, last loss, time and peak memory of training and of inference, the ratios of times,
    and the share of calls that ran on our kernels."""
    how = f"mini-batches of {config.batch}, fan-out {config.fanout}" if config.batch else "whole graph"
    if config.batch and config.evaluate == "full":
        how += ", evaluated on the whole graph"
    grid = Table(
        title=f"{MODELS[config.model]}, {config.layers} layers, hidden {config.hidden}, {how}, {config.epochs} epochs, "
        f"seed {config.seed}, {_where(config)}\n{dataset}",
        title_justify="left",
    )
    for column in ("framework", "backend"):
        grid.add_column(column)
    for column in (
        "accuracy",
        "loss",
        "ms per epoch",
        "speed-up",
        "peak\nMiB",
        "ms inference",
        "speed-up",
        "peak\nMiB",
        "our\ncalls",
    ):
        grid.add_column(column, justify="right")
    for off, on in pairs(runs):
        for run in filter(None, (off, on)):
            pair = (off, run) if off and run is on else None
            share = run.own_share if run is on else None
            grid.add_row(
                LABELS[run.framework],
                run.backend,
                f"{run.test_accuracy:.4f}",
                f"{run.losses[-1]:.4f}",
                *_timed(pair, run, lambda each: each.epoch_seconds(config)),
                _mebibytes(run.peak_bytes),
                *_timed(pair, run, lambda each: each.inference_seconds),
                _mebibytes(run.inference_peak_bytes),
                "" if share is None else f"{share:.0%}",
            )
        grid.add_section()
    return grid


def _where(config: Config) -> str:
    return torch.cuda.get_device_name() if config.device == "cuda" else f"{torch.get_num_threads()} threads"


def _mebibytes(size: int | None) -> str:
    return "" if size is None else f"{size / 2**20:.0f}"


def _timed(pair: tuple[Run, Run] | None, run: Run, seconds: Callable[[Run], float]) -> tuple[str, str]:
    """(milliseconds, how much faster the second of a pair is)."""
    return f"{seconds(run) * 1e3:.1f}", "" if pair is None else f"{seconds(pair[0]) / seconds(pair[1]):.2f}"


def write(out: Path, name: str, dataset: Dataset, runs: Sequence[Run], config: Config) -> list[Path]:
    """``name``.json and ``name``.png in the folder ``out``, which is made where missing."""
    out.mkdir(parents=True, exist_ok=True)
    record = {
        "dataset": {
            "name": dataset.name,
            "origin": dataset.origin,
            "nodes": dataset.num_nodes,
            "edges": dataset.num_edges,
            "features": dataset.features.shape[1],
            "classes": dataset.num_classes,
        },
        "config": dataclasses.asdict(config),
        "machine": {
            "platform": platform.platform(),
            "threads": torch.get_num_threads(),
            "trained on": _where(config),
            "torch": torch.__version__,
            **{PACKAGES[f]: version(PACKAGES[f]) for f in sorted({run.framework for run in runs})},
        },
        "runs": [dataclasses.asdict(run) | {"epoch_seconds": run.epoch_seconds(config)} for run in runs],
        "disagreements": disagreements(runs),
    }
    files = [out / f"{name}.json", out / f"{name}.png"]
    files[0].write_text(json.dumps(record, indent=1) + "\n")
    plot(runs, config).savefig(files[1], dpi=120)
    return files


def plot(runs: Sequence[Run], config: Config):
    """Loss and time of each epoch, as a matplotlib figure."""
    from matplotlib.figure import Figure  # the object interface: no global state, no display

    figure = Figure(figsize=(10, 4), layout="constrained")
    loss, seconds = figure.subplots(1, 2)
    colours = {framework: f"C{i}" for i, framework in enumerate(dict.fromkeys(run.framework for run in runs))}
    for run in runs:
        # a thick pale line for the framework alone shows behind the thin one that should cover it
        style = {"lw": 4, "alpha": 0.35} if run.backend == "off" else {"lw": 1.5}
        label = f"{LABELS[run.framework]}, backend {run.backend}"
        epochs = range(1, len(run.losses) + 1)
        loss.plot(epochs, run.losses, color=colours[run.framework], label=label, **style)
        timed = run.timed(config)
        seconds.plot(
            [epoch + 1 for epoch in timed],
            [run.seconds[epoch] * 1e3 for epoch in timed],
            color=colours[run.framework],
            label=label,
            marker=".",
            **style,
        )
    loss.set(title="training loss", xlabel="epoch", ylabel="cross entropy (nats)")
    seconds.set(title="time of an epoch, without warm-up epochs", xlabel="epoch", ylabel="ms")
    seconds.set_ylim(bottom=0)
    for axes in (loss, seconds):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def show(console: Console, dataset: Dataset, runs: Sequence[Run], config: Config, files: Sequence[Path]) -> bool:
    """Print the table, the files written and every disagreement. True where all pairs agree."""
    console.print(table(dataset, runs, config))
    problems = disagreements(runs)
    for problem in problems:
        console.print(f"[bold red]beyond rounding:[/] {problem}")
    if not problems and any(off and on for off, on in pairs(runs)):
        console.print("Accuracy with and without the backend agrees.")
    console.print("Written: " + ", ".join(map(str, files)), soft_wrap=True)
    return not problems
