"""A graph cut and trained on by so many processes: what they measured."""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch.multiprocessing as mp

import gnn_sparse_backend as gsb
from benchmarks.partitioned import worker
from benchmarks.partitioned.graphs import graph_of, rows_of


@dataclass(frozen=True)
class Problem:
    """A graph and a model. width: of features and hidden layers. reuse: with ``gsb.reuse_memory``. layer: of
    ``worker.LAYERS``.
    """

    nodes: int
    edges: int
    width: int
    layers: int
    epochs: int
    method: str = "range"
    seed: int = 0
    reuse: bool = False
    layer: str = "mean"


def cut(problem: Problem, counts: list[int], folder: Path) -> dict[int, dict]:
    """Parts for each number of processes, below the folder, where they are not yet; what their reports say."""
    missing = [count for count in counts if not (folder / str(count) / "manifest.json").is_file()]
    if missing:
        graph = graph_of(problem.nodes, problem.edges, problem.seed)
        features, labels = rows_of(problem.nodes, problem.width, problem.seed)
        for count in missing:
            given = dict(features=features, labels=labels, seed=problem.seed, progress=False)
            gsb.distributed.partition(graph, count, folder / str(count), problem.method, **given)
    return {count: _told(folder / str(count)) for count in counts}


def _told(folder: Path) -> dict:
    report = json.loads((folder / "manifest.json").read_text())["report"]
    return {name: report[name] for name in ("edge_cut", "balance", "halo")}


def measure(
    problem: Problem,
    folder: Path,
    count: int,
    threads: int,
    delayed: bool = False,
    shared: bool = True,
    overlap: bool = True,
) -> dict:
    """Epochs of ``count`` processes with so many threads each, as plain values: medians in seconds."""
    parts = folder / str(count)
    with tempfile.TemporaryDirectory() as once:
        for each in parts.iterdir():  # the store of the processes is made anew
            (Path(once) / each.name).symlink_to(each)
        given = (once, count, threads, problem.layers, problem.width, problem.epochs, delayed, shared)
        given = (*given, problem.reuse, problem.layer, overlap)
        mp.start_processes(worker.run, given, nprocs=count, start_method="spawn")
        told = [json.loads((Path(once) / f"told{rank}.json").read_text()) for rank in range(count)]
    return summary(told, threads)


def summary(told: list[dict], threads: int) -> dict:
    """epoch: the median over epochs of the slowest process. The other times are means over processes of medians:
    compute is what is neither the wait for halos nor the sum of gradients. hidden: share of the exchanges' own time
    (``wire``) that nobody waited for.
    """

    def median(name: str) -> float:
        return statistics.mean(statistics.median(each[name] for each in one["epochs"]) for one in told)

    epochs = [max(each) for each in zip(*([e["epoch"] for e in one["epochs"]] for one in told))]
    wire = statistics.mean(one["wire"] for one in told)
    waits = median("halo")
    return {
        "processes": len(told),
        "threads": threads,
        "epoch": statistics.median(epochs),
        "epochs": epochs,
        "compute": median("epoch") - waits - median("gradients"),
        "halo": waits,
        "gradients": median("gradients"),
        "wire": wire,
        "hidden": 1 - waits / wire if wire else None,
        "sent": [one["sent"] for one in told],
        "peak": [one["peak"] for one in told],
        "loss": statistics.mean(one["epochs"][-1]["loss"] for one in told),
    } | {name: [one[name] for one in told] for name in ("rows", "edges", "inner")}
