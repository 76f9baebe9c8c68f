"""``gsb explain FILE``: the plan of an operator on a graph, and why."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .files import FORMATS, FileError, features_argument, load_graph, on_device, set_threads


def add(commands) -> None:
    command = commands.add_parser(
        "explain",
        help="show which plan an operator runs by on a graph, and why",
        description=f"Show the plan, the other candidates with predicted and measured times, and the reason. FILE: "
        f"{FORMATS}",
    )
    command.add_argument("file", metavar="FILE", type=Path)
    command.add_argument(
        "--op", default="sum", help="sum (default), mean, prod, max, min, the same after weighted_, or dot"
    )
    command.add_argument("--backward", action="store_true", help="the gradient to the features instead")
    command.add_argument(
        "--plot",
        type=Path,
        metavar="PNG",
        help="draw the degrees with their buckets, and the candidates against the roofline",
    )
    features_argument(command, several=False)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """1 where there is nothing to explain, otherwise 0."""
    from ..compiler.codegen import BuildError
    from ..tuning.explain import explain_graph

    set_threads(options.threads)
    try:
        graph = on_device(load_graph(options.file), options.device)
        explanation = explain_graph(graph, options.op, options.features, dtype=options.dtype, backward=options.backward)
    except (FileError, ValueError, BuildError) as error:
        print(f"gsb explain: {error}", file=sys.stderr)
        return 1
    print(explanation, end="")
    if options.plot is not None:
        try:
            explanation.plot(options.plot)
        except (ImportError, OSError, ValueError) as error:
            print(f"gsb explain: no picture: {error}", file=sys.stderr)
            return 1
        print(f"written: {options.plot}")
    return 0
