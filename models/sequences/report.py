"""The table, the curve and the files of a training."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from models.sequences.task import SYMBOLS
from models.sequences.train import ARMS, Config, Run, most_by_windows

GOOD = 0.9
"""Accuracy of a network that has learned the task."""


def show(console: Console, runs: list[Run], config: Config) -> bool:
    """Print the table. Returns whether what sees everything has learned the task."""
    table = Table(title=f"{config.length} tokens, one needle, {SYMBOLS} symbols", title_justify="left")
    table.add_column("attention")
    for heading in ("loss", "accuracy", "beyond windows", "ms a step", "MiB a step"):
        table.add_column(heading, justify="right")
    for run in runs:
        peak = "–" if run.peak_bytes is None else f"{run.peak_bytes / 2**20:.0f}"
        numbers = (f"{run.losses[-1]:.3f}", f"{run.accuracy:.1%}", f"{run.far_accuracy:.1%}")
        table.add_row(ARMS[run.name][0], *numbers, f"{run.step_seconds() * 1e3:.0f}", peak)
    console.print(table)
    console.print(
        f"Windows of {config.window} tokens on either side in {config.layers} layers reach {config.reach} tokens: "
        f"alone they allow {most_by_windows(config):.1%}. Guessing gives {1 / SYMBOLS:.1%}."
    )
    return all(run.accuracy >= GOOD for run in runs if run.name != "window")


def write(folder: Path, runs: list[Run], config: Config) -> list[Path]:
    """longformer.json and longformer.png: all losses, and their curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    found = {"config": asdict(config), "most_by_windows": most_by_windows(config), "runs": [r.to_dict() for r in runs]}
    (folder / "longformer.json").write_text(json.dumps(found, indent=1))
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for run in runs:
        axes.plot(run.losses, label=f"{ARMS[run.name][0]}: {run.accuracy:.1%}")
    for stage, length in enumerate(config.lengths):
        axes.axvline(stage * config.steps, color="grey", linewidth=0.5)
        axes.text(stage * config.steps, axes.get_ylim()[1], f" {length}", va="top", fontsize="small")
    axes.set(xlabel="step; lines: the sequences become longer", ylabel="loss")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(folder / "longformer.png", dpi=120)
    pyplot.close(figure)
    return [folder / "longformer.json", folder / "longformer.png"]
