"""What the scripts share: options, threads, the progress bar, and errors in words."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path

CORA = {"hidden": 64, "epochs": 200}
OTHERS = {"hidden": 128, "epochs": 30}
BACKENDS = {"off": ("off",), "on": ("on",), "both": ("off", "on")}
DATASETS = "generated|cora|PATH.npz"
DATASETS_HELP = (
    "Cora is read from $GSB_DATA/planetoid or downloaded; a .npz file needs indptr and indices (or src and dst), "
    "and may have features and labels"
)
MODULES = {"dgl": "dgl", "pyg": "torch_geometric"}


def installed(framework: str) -> bool:
    return importlib.util.find_spec(MODULES[framework]) is not None


def add_options(
    parser: argparse.ArgumentParser, datasets: str = DATASETS, datasets_help: str = DATASETS_HELP, **defaults
) -> None:
    """The options of a training, all with defaults; ``defaults`` are those of the script, where they are others."""
    parser.add_argument(
        "--dataset", default="generated", metavar=datasets, help=f"{datasets_help} (default: %(default)s)"
    )
    parser.add_argument("--nodes", type=int, default=100_000, help="of the generated graph (default: %(default)s)")
    parser.add_argument("--edges", type=int, default=1_000_000, help="of the generated graph (default: %(default)s)")
    own = "%(default)s"
    parser.add_argument(
        "--hidden",
        type=int,
        help=f"width of the hidden layers (default: {own if 'hidden' in defaults else '128, for Cora 64'})",
    )
    parser.add_argument("--layers", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, help=f"default: {own if 'epochs' in defaults else '30, for Cora 200'}")
    parser.add_argument("--lr", type=float, default=0.01, help="default: %(default)s")
    parser.add_argument("--dropout", type=float, default=0.5, help="default: %(default)s")
    parser.add_argument("--weight-decay", type=float, default=5e-4, help="default: %(default)s")
    add_run_options(parser)
    parser.set_defaults(**defaults)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """The options of every training: where and how it runs."""
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where model and data are (default: %(default)s)"
    )
    parser.add_argument(
        "--backend", choices=BACKENDS, default="both", help="both: train twice, taking turns (default: %(default)s)"
    )
    parser.add_argument(
        "--precompile",
        default="",
        metavar="TIME",
        help="compile and measure what the layers run in so much time, such as 30s, before the backend's training",
    )
    add_place_options(parser)


def add_place_options(parser: argparse.ArgumentParser, files: str = "JSON and PNG") -> None:
    """The options of every script: on how many threads, from which seed, and where ``files`` go."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=cores, help="default: all cores, here %(default)s")
    parser.add_argument("--out", type=Path, default=Path("out"), help=f"folder for {files} (default: %(default)s)")


def script(parser: argparse.ArgumentParser, argv: list[str] | None, model: str = "sage") -> int:
    """``main`` for the one framework that the user names. Returns the exit status."""
    parser.add_argument("--framework", choices=MODULES, required=True)
    args = parser.parse_args(argv)
    if not installed(args.framework):
        print(
            f"error: {MODULES[args.framework]} is not installed; try: "
            f"pip install 'gnn-sparse-backend[{args.framework}]'",
            file=sys.stderr,
        )
        return 2
    return main(args, [args.framework], f"{parser.prog}-{args.framework}", model)


def main(args: argparse.Namespace, frameworks: list[str], name: str, model: str = "sage") -> int:
    """Train under each framework, print one table, write ``name``.json and .png. Returns the exit status.

    0: all went well; 1: accuracy with and without the backend differs beyond rounding; 2: bad input.
    """
    if (lacking := start(args, frameworks)) is not None:
        print(f"error: {lacking}", file=sys.stderr)
        return 2
    from models import data, relational_data, report
    from models.train import Config, train

    console = console_of_width()
    defaults = CORA if args.dataset == "cora" else OTHERS
    backends = BACKENDS[args.backend]
    try:
        config = Config(
            args.hidden if args.hidden is not None else defaults["hidden"],
            args.layers,
            args.dropout,
            args.lr,
            args.weight_decay,
            args.epochs if args.epochs is not None else defaults["epochs"],
            seed=args.seed,
            model=model,
            precompile=args.precompile,
            device=args.device,
            **{name: getattr(args, name) for name in ("bases", "batch", "fanout", "evaluate") if hasattr(args, name)},
        )
        size = {"nodes": args.nodes, "edges": args.edges, "seed": args.seed}
        sets = {}
        for framework in frameworks:
            # only Cora depends on the framework
            if sets and args.dataset != "cora":
                sets[framework] = next(iter(sets.values()))
            elif model == "rgcn":
                sets[framework] = relational_data.load(args.dataset, framework, **size)
            else:
                sets[framework] = data.load(args.dataset, framework, **size)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2

    runs = []
    with progress_bar(console) as progress:
        for framework in frameworks:
            label = report.LABELS[framework]
            task = progress.add_task(label, total=config.epochs * len(backends))

            def on_epoch(run, task=task, label=label):
                progress.update(
                    task, advance=1, description=f"{label}, backend {run.backend:3}, loss {run.losses[-1]:.3f}"
                )

            runs += train(framework, backends, sets[framework], config, on_epoch)
    dataset = sets[frameworks[0]]
    files = report.write(args.out, name, dataset, runs, config)
    return 0 if report.show(console, dataset, runs, config, files) else 1


def start(args: argparse.Namespace, frameworks: list[str]) -> str | None:
    """Set the threads. Returns why nothing can be trained, and what to do; None where all is there."""
    if args.threads < 1:
        return f"--threads must be at least 1, got {args.threads}"
    # before the first import of torch and DGL, which make their thread pools then
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import torch

    torch.set_num_threads(args.threads)
    return _lacking(args.device, frameworks)


def console_of_width():
    """A console, wide enough for the tables in a log or a pipe, which have no width of their own."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=120)


def progress_bar(console):
    """A bar of what is done of how much, and of the time that is left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def _lacking(device: str, frameworks: list[str]) -> str | None:
    """Why nothing can be trained on the device, and what to do; None where all is there."""
    if device == "cpu":
        return None
    import torch

    if not torch.cuda.is_available():
        return (
            "--device cuda: PyTorch finds no GPU here; `gsb doctor` says what is missing, --device cpu goes without one"
        )
    if "dgl" in frameworks:
        import dgl

        try:
            dgl.graph(([0], [0])).to("cuda")
        except dgl.DGLError as error:
            return (
                f"--device cuda: this DGL has no CUDA ({str(error).splitlines()[-1]}); its wheels on PyPI have none: "
                f"install one from "
                "data.dgl.ai, or take PyG"
            )
    return None
