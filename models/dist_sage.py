"""GraphSAGE or RGCN on DGL's distributed store, with the backend off and on: one command on one computer.

    python -m models.dist_sage                  GraphSAGE, two parts on two machines that are network namespaces
    python -m models.dist_sage --model rgcn     RGCN, with an edge type for each relation
    python -m models.dist_sage --machines 1 --trainers 2    one part, for computers without namespaces

DGL cuts the graph, serves it and draws the batches. On every batch the same model takes a step with the backend off,
and one with it on.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile

from rich.console import Console
from rich.table import Table

from models import cli
from models.dgl_engine import launch, machines
from models.dgl_engine.job import Job

WARM = 2
"""Steps that are not timed: kernels are compiled, and memory is met, in them."""
TOLERANCE = {"float32": 2e-3, "float64": 1e-9}
"""Of losses with and without the backend, relative: rounding, carried on by the steps before."""


def options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dist_sage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=("sage", "rgcn"), default="sage", help="default: %(default)s")
    parser.add_argument("--machines", type=int, help="default: 2, and 1 where namespaces are not allowed")
    parser.add_argument("--trainers", type=int, help="on each machine (default: 1, and 2 on one machine)")
    parser.add_argument("--nodes", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--edges", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--method", choices=("metis", "random"), default="metis", help="default: %(default)s")
    parser.add_argument("--hidden", type=int, default=128, help="default: %(default)s")
    parser.add_argument("--fanouts", type=int, nargs="+", default=[10, 10], help="-1 takes all (default: 10 10)")
    parser.add_argument("--batch", type=int, default=1024, help="seeds of a trainer's batch (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.01, help="default: %(default)s")
    parser.add_argument("--dtype", choices=TOLERANCE, default="float32", help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=600, help="seconds (default: %(default)s)")
    cli.add_place_options(parser, "JSON")
    parser.set_defaults(threads=1)
    args = parser.parse_args(argv)
    if args.steps <= WARM:
        parser.error(f"--steps must be more than {WARM}, which are not timed, got {args.steps}")
    return args


def job_of(args: argparse.Namespace, folder: str) -> Job:
    refused = machines.why_not() if args.machines is None or args.machines > 1 else None
    if refused and args.machines:
        raise ValueError(f"--machines {args.machines}: {refused}; take --machines 1 --trainers 2")
    if refused:
        print(f"one machine: {refused}", file=sys.stderr)
    count = args.machines or (1 if refused else 2)
    given = {name: getattr(args, name) for name in Job.__dataclass_fields__ if name in vars(args)}
    given |= {"machines": count, "trainers": args.trainers or (2 if count == 1 else 1), "fanouts": tuple(args.fanouts)}
    return Job(**given, folder=folder, separate=count > 1, port=_free_port())


def summary(job: Job, told: dict) -> dict:
    """Medians of the steps that are timed, of the slowest trainer; losses; memory; bytes."""
    trainers = told["trainer"]
    medians = [
        {name: statistics.median(each[WARM:]) for name, each in trainer["seconds"].items()} for trainer in trainers
    ]
    off, on = (trainers[0]["losses"][name] for name in ("off", "on"))
    return {
        "seconds": {name: max(each[name] for each in medians) for name in medians[0]},
        "loss": {"off": off, "on": on},
        "difference": max(abs(a - b) / abs(a) for a, b in zip(off, on)),
        "ours": sum(each["ours"] for each in trainers),
        "fallbacks": sum(each["fallbacks"] for each in trainers),
        "parts": sorted({each["part"] for each in trainers}),
        "peak": {kind: [each["peak"] for each in told[kind]] for kind in ("trainer", "server")},
        "sent_per_step": told["sent"] and [each / job.steps for each in told["sent"]],
    }


def table(job: Job, found: dict) -> Table:
    grid = Table(
        title=f"{job.model}: {job.machines} machine(s), {job.trainers} trainer(s) each on {job.threads} thread(s); "
        f"{job.nodes:,} nodes, {job.edges:,} edges, {job.method}; batches of {job.batch}, fan-outs "
        f"{'-'.join(map(str, job.fanouts))}, hidden {job.hidden}, {job.dtype}",
        title_justify="left",
    )
    for column in ("ms of a step", "backend off", "backend on", "off over on"):
        grid.add_column(column)
    seconds = found["seconds"]
    off, on = seconds["off"] * 1e3, seconds["on"] * 1e3
    grid.add_row("the model's part", f"{off:.1f}", f"{on:.1f}", f"{off / on:.2f}")
    ours = (seconds["sampling"] + seconds["features"]) * 1e3
    grid.add_row("with DGL's sampling and features", f"{off + ours:.1f}", f"{on + ours:.1f}", _over(off, on, ours))
    return grid


def _over(off: float, on: float, both: float) -> str:
    return f"{(off + both) / (on + both):.2f}"


def main(argv: list[str] | None = None) -> int:
    """Run, print and write ``dist-<model>.json``. 1 where losses differ or a call fell back, 2 where nothing ran."""
    args = options(argv)
    if not cli.installed("dgl"):
        print("error: DGL is not installed; pip install -e '.[dgl]'", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="dist_sage") as folder:
        try:
            job = job_of(args, folder)
            found = summary(job, launch.run(job))
        except (ValueError, RuntimeError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    args.out.mkdir(parents=True, exist_ok=True)
    told = {"job": {name: getattr(job, name) for name in Job.__dataclass_fields__}} | found
    (args.out / f"dist-{job.model}.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    console = Console()
    console.print(table(job, found))
    seconds, peak = found["seconds"], found["peak"]
    console.print(f"sampling {seconds['sampling'] * 1e3:.1f} ms, features {seconds['features'] * 1e3:.1f} ms of a step")
    for kind, each in peak.items():
        console.print(f"peak memory of each {kind}: " + ", ".join(f"{x / 2**20:,.0f} MiB" for x in each))
    if found["sent_per_step"]:
        console.print("MB sent a step by each machine: " + ", ".join(f"{x / 1e6:.2f}" for x in found["sent_per_step"]))
    last = {name: each[-1] for name, each in found["loss"].items()}
    console.print(f"last loss {last['off']:.6f} off, {last['on']:.6f} on; largest difference {found['difference']:.1e}")
    console.print(f"{found['ours']} calls on our kernels, {found['fallbacks']} fell back; parts {found['parts']}")
    return int(found["difference"] > TOLERANCE[job.dtype] or found["fallbacks"] > 0 or found["ours"] == 0)


def _free_port() -> int:
    """A port that nobody listens at, with the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


if __name__ == "__main__":
    sys.exit(main())
