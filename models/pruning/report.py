"""The tables, the curve and the files of a pruned network."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from models.pruning.measure import Cost
from models.pruning.task import VALUES
from models.pruning.train import ARMS, Config, Result, Run

NEAR = 0.05
"""What the losses of masked and of sparse layers may differ by, on the mean of their last steps."""
LAST = 10
"""Steps that the losses are compared on."""


def show(console: Console, result: Result, layer: Mapping[str, Cost], config: Config) -> bool:
    """Print the tables. Returns whether sparse layers have learned what masked ones have."""
    console.print(str(result.decisions))
    title = f"{config.layers} layers of {config.width}, {config.batch} sequences of {config.length} tokens"
    table = _table(title, "network", "loss", "accuracy")
    for name, cost in result.costs.items():
        run = result.runs.get(name)
        learned = ("–", "–") if run is None else (_last(run), f"{run.accuracy:.1%}")
        table.add_row(ARMS[name], *learned, *_costs(cost, result.costs["dense"]))
    console.print(table)
    if layer:
        title = f"One layer of BERT's size, {config.layer_tokens:,} tokens, generated pattern"
        table = _table(title, "layer")
        for name, cost in layer.items():
            table.add_row(name, *_costs(cost, layer["dense"]))
        console.print(table)
    apart = difference(result)
    maps = [each for each in result.decisions.decisions if each.name.startswith("layers.")]
    sizes = [rows * columns for rows, columns in (each.shape for each in maps)]
    left = sum(each.density * size for each, size in zip(maps, sizes)) / sum(sizes)
    console.print(
        f"{config.structure}, {config.criterion}: {left:.1%} of the layers' weights are left. Guessing gives "
        f"{1 / VALUES:.1%}. Losses with masks and with sparse layers differ by {apart:.4f}."
    )
    return apart <= NEAR


def difference(result: Result) -> float:
    """Of the losses of masked and sparse layers at their last steps."""
    ends = [result.runs[name].losses[-LAST:] for name in ("masked", "sparse")]
    return abs(sum(ends[0]) - sum(ends[1])) / max(len(ends[0]), 1)


def write(folder: Path, result: Result, layer: Mapping[str, Cost], config: Config) -> list[Path]:
    """pruned_bert.json and pruned_bert.png: losses, accuracy and density of each step, and what all costs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    costs, layers = ({name: cost.to_dict() for name, cost in each.items()} for each in (result.costs, layer))
    runs = [run.to_dict() for run in result.runs.values()]
    decisions = [asdict(each) for each in result.decisions.decisions]
    found = {"config": asdict(config), "runs": runs, "costs": costs, "layer": layers, "decisions": decisions}
    (folder / "pruned_bert.json").write_text(json.dumps(found, indent=1))
    figure, (losses, shares) = pyplot.subplots(2, 1, figsize=(7, 6), sharex=True)
    for name, run in result.runs.items():
        steps = range(run.first, run.first + len(run.losses))
        losses.plot(steps, run.losses, label=ARMS[name], linewidth=0.8)
        line = shares.plot(steps, run.densities, label=f"density: {ARMS[name]}", linewidth=0.8)[0]
        at, values = [step for step, _ in run.accuracies], [value for _, value in run.accuracies]
        shares.plot(at, values, ".", color=line.get_color(), label=f"accuracy: {ARMS[name]}")
    losses.set(ylabel="loss", yscale="log")
    shares.set(xlabel="step", ylabel="share", ylim=(0, 1.05))
    for axes in (losses, shares):
        axes.legend(fontsize="x-small")
    figure.tight_layout()
    figure.savefig(folder / "pruned_bert.png", dpi=120)
    pyplot.close(figure)
    return [folder / "pruned_bert.json", folder / "pruned_bert.png"]


def save(folder: Path, state: dict[str, torch.Tensor]) -> Path:
    """The state of the dense network, pruned weights being zero: by safetensors where it is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("safetensors") is None:
        torch.save(state, folder / "pruned_bert.pt")
        return folder / "pruned_bert.pt"
    from safetensors.torch import save_file

    save_file({name: x.contiguous() for name, x in state.items()}, folder / "pruned_bert.safetensors")
    return folder / "pruned_bert.safetensors"


def load(path: Path) -> dict[str, torch.Tensor]:
    """What `save` wrote.

    Raises ValueError where the file is not there or cannot be read; it is quoted.
    """
    if not path.is_file():
        raise ValueError(f"--load: no file {path}")
    if path.suffix != ".safetensors":
        return torch.load(path, weights_only=True)
    if importlib.util.find_spec("safetensors") is None:
        raise ValueError(f"--load {path}: safetensors is not installed; try: pip install safetensors")
    from safetensors.torch import load_file

    return load_file(path)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    for at, heading in enumerate((*headings, "ms forward", "ms a step", "MiB weights", "MiB beside", "MiB a step")):
        table.add_column(heading, justify="right" if at else "left")
    return table


def _costs(cost: Cost, dense: Cost) -> list[str]:
    times = [
        f"{own * 1e3:.1f} ({others / own:.2f} x)"
        for own, others in ((cost.forward, dense.forward), (cost.step, dense.step))
    ]
    sizes = [f"{size / 2**20:.1f}" for size in (cost.weights, cost.structure)]
    return [*times, *sizes, "–" if cost.peak is None else f"{cost.peak / 2**20:.0f}"]


def _last(run: Run) -> str:
    return f"{sum(run.losses[-LAST:]) / len(run.losses[-LAST:]):.4f}" if run.losses else "–"
