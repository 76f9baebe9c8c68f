"""What came of the trainings: tables, a JSON file, plots of the losses and of scenes from above."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from models.point_clouds.classes import COLOURS, NAMES
from models.point_clouds.data import Cloud, Scans
from models.point_clouds.scan import Scan
from models.point_clouds.train import LINEAR, Config, Run, Trainee, disagreement

LABELS = {"off": "MinkUNet, plain PyTorch", "on": "MinkUNet, our convolutions", LINEAR: "linear, point by point"}


def disagreements(runs: Sequence[Run]) -> list[str]:
    by_name = {run.name: run for run in runs}
    found = disagreement(by_name["off"], by_name["on"]) if {"off", "on"} <= set(by_name) else None
    return [found] if found else []


def tables(scans: Scans, runs: Sequence[Run], config: Config) -> list[Table]:
    """Of every run mean IoU, losses, times, memory; and the IoU of every class."""
    where = torch.cuda.get_device_name() if config.device == "cuda" else f"{torch.get_num_threads()} threads"
    summary = Table(
        title=f"MinkUNet-{config.depth}, width {config.width:g}, voxels of {config.voxel:g} m, {config.epochs} epochs, "
        f"batch {config.batch}, seed {config.seed}, {where}\n{scans}",
        title_justify="left",
    )
    summary.add_column("model")
    for column in ("mean IoU", "accuracy", "first loss", "last", "s per epoch", "speed-up", "peak MiB", "ms a scan"):
        summary.add_column(column, justify="right")
    plain = next((run for run in runs if run.name == "off"), None)
    for run in runs:
        faster = f"{plain.epoch_seconds / run.epoch_seconds:.2f}" if plain and run.name == "on" else ""
        summary.add_row(
            LABELS[run.name],
            f"{run.mean_iou:.4f}",
            f"{run.accuracy:.4f}",
            f"{run.losses[0]:.5f}",
            f"{run.last_loss():.5f}",
            f"{run.epoch_seconds:.2f}",
            faster,
            "" if run.peak_bytes is None else f"{run.peak_bytes / 2**20:.0f}",
            f"{run.inference_seconds * 1e3:.0f}",
        )
    classes = Table(title="IoU of each class on the validation scans", title_justify="left")
    classes.add_column("class")
    for run in runs:
        classes.add_column(LABELS[run.name], justify="right")
    for name in runs[0].iou:
        classes.add_row(name, *(f"{run.iou[name]:.3f}" for run in runs))
    return [summary, classes]


def write(out: Path, scans: Scans, trainees: Sequence[Trainee], config: Config, shown: Sequence[Scan]) -> list[Path]:
    """``minkunet.json``, ``minkunet.png`` of the losses, and for each of ``shown`` a picture of the prediction."""
    out.mkdir(parents=True, exist_ok=True)
    runs = [trainee.run for trainee in trainees]
    record = {
        "data": {"name": scans.name, "origin": scans.origin, "train": len(scans.train), "val": len(scans.val)},
        "config": dataclasses.asdict(config),
        "machine": {
            "platform": platform.platform(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        },
        "runs": [dataclasses.asdict(run) | {"epoch_seconds": run.epoch_seconds} for run in runs],
        "disagreements": disagreements(runs),
    }
    files = [out / "minkunet.json", out / "minkunet.png"]
    files[0].write_text(json.dumps(record, indent=1) + "\n")
    plot_losses(runs).savefig(files[1], dpi=120)
    best = max((each for each in trainees if each.run.name != LINEAR), key=lambda each: each.run.name == "on")
    for scan in shown:
        cloud = Cloud.of([scan], config.voxel).to(config.device)
        files.append(out / f"minkunet-{scan.name.replace(' ', '-')}.png")
        plot_scene(scan, best.predict(cloud).cpu().numpy()).savefig(files[-1], dpi=120)
    return files


def plot_losses(runs: Sequence[Run]):
    """The loss of each step, as a matplotlib figure."""
    from matplotlib.figure import Figure  # the object interface: no global state, no display

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for run in runs:
        # a thick pale line for plain PyTorch shows behind the thin one that should cover it
        style = {"lw": 4, "alpha": 0.35} if run.name == "off" else {"lw": 1.5}
        axes.plot(range(1, len(run.losses) + 1), run.losses, label=LABELS[run.name], **style)
    axes.set(title="training loss", xlabel="step", ylabel="weighted cross entropy (nats)")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def plot_scene(scan: Scan, predicted: np.ndarray, reach: float = 50.0):
    """The predicted classes from above, beside the true ones where the scan has any, as a matplotlib figure."""
    from matplotlib.figure import Figure

    known = bool(scan.labels.any())
    sides = {"predicted": predicted} | ({"true": scan.labels} if known else {})
    low = np.maximum(scan.points[:, :2].min(0), -reach)
    high = np.minimum(scan.points[:, :2].max(0), reach)
    figure = Figure(figsize=(7 * len(sides), 8), layout="constrained")
    order = np.argsort(scan.points[:, 2])  # what is higher covers what is below it
    colours = np.array(COLOURS)
    for axes, (title, classes) in zip(figure.subplots(1, len(sides), squeeze=False).flat, sides.items()):
        axes.scatter(*scan.points[order, :2].T, c=colours[classes[order]], s=0.6, linewidths=0)
        axes.set(title=f"{scan.name}, {title}", xlabel="m", ylabel="m", aspect="equal")
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    there = sorted(set(np.unique(predicted)) | set(np.unique(scan.labels)) if known else set(np.unique(predicted)))
    marks = [axes.scatter([], [], c=COLOURS[c], s=30, label=NAMES[c]) for c in there]
    figure.legend(handles=marks, loc="outside lower center", ncols=4 * len(sides))
    return figure


def show(console: Console, scans: Scans, runs: Sequence[Run], config: Config, files: Sequence[Path]) -> bool:
    """Print the tables, the files written and a disagreement. True where the losses of both networks agree."""
    for table in tables(scans, runs, config):
        console.print(table)
    problems = disagreements(runs)
    for problem in problems:
        console.print(f"[bold red]beyond rounding:[/] {problem}")
    if not problems and {"off", "on"} <= {run.name for run in runs}:
        console.print("The first losses on plain PyTorch and on our convolutions agree.")
    console.print("Written: " + ", ".join(map(str, files)), soft_wrap=True)
    return not problems
