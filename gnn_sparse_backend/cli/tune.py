"""``gsb tune FILE``: measure the plans of a graph, and remember the fastest."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .arguments import FORMATS, features_argument


def add(commands) -> None:
    command = commands.add_parser(
        "tune",
        help="measure the plans of a graph, and remember the fastest",
        description="Compile and measure what operators may run on a graph, and keep the fastest plans for later "
        f"processes. FILE: {FORMATS}",
    )
    command.add_argument("files", metavar="FILE", type=Path, nargs="+")
    command.add_argument(
        "--ops",
        nargs="+",
        default=["sum"],
        metavar="OP",
        help="sum (default), mean, prod, max, min, weighted_sum and so on, dot, edge_softmax, attention, "
        "gat_attention, gatv2_attention; on relations rgms, rgms_mean, rgms_blocks, rgms_bases and so on",
    )
    command.add_argument("--budget", default="30s", help="time to spend, such as 500ms, 30s or 2m (default: 30s)")
    command.add_argument(
        "--search",
        action="store_true",
        help="search all kernels of each operator, forward and backward, within the budget, and print the regret of "
        "the plans before; with a budget of 0 what the cost model expects",
    )
    command.add_argument("--forward", action="store_true", help="leave the gradients out")
    command.add_argument("--again", action="store_true", help="measure again what is known, this machine included")
    features_argument(command, several=True)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """1 where there is no graph to tune, 130 after Ctrl-C, otherwise 0."""
    from rich.console import Console

    from ..compiler.codegen import BuildError
    from ..ops.core.plans_cuda import gpu_of
    from ..ops.core.prepared import KINDS
    from ..structures.graph import Graph
    from ..structures.relational.graph import RelGraph
    from ..tuning.calibrate_cpu import calibrate
    from ..tuning.calibrate_cuda import calibrate_gpu
    from ..tuning.precompile import precompile_graphs, seconds_of
    from ..tuning.precompile_operators import kinds_of
    from .files import FileError, load_graph, load_relations, on_device, set_threads

    set_threads(options.threads)
    try:
        load = {Graph: load_graph, RelGraph: load_relations}
        kinds = kinds_of(options.ops, options.features)
        if unread := [kind for kind in kinds if kind not in load]:
            raise ValueError(
                f"some operator in --ops runs on {KINDS[unread[0]].words}, which no file holds: give it to "
                "gsb.precompile"
            )
        graphs = [(path.name, on_device(load[kind](path), options.device)) for path in options.files for kind in kinds]
        seconds_of(options.budget)
        if options.again:
            device = graphs[0][1].device
            calibrate_gpu(device) if gpu_of(device) else calibrate()
        report = precompile_graphs(
            graphs,
            options.features,
            options.ops,
            options.budget,
            dtype=options.dtype,
            backward=not options.forward,
            again=options.again,
            progress=sys.stderr.isatty(),
            search=options.search,
        )
    except (FileError, ValueError, BuildError) as error:
        print(f"gsb tune: {error}", file=sys.stderr)
        return 1
    Console().print(report.table())
    if report.regrets:
        Console().print(report.regrets)
    return 130 if report.interrupted else 0
