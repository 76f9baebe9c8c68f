"""``gsb explain FILE``: the plan of an operator on a graph, and why."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .arguments import FORMATS, features_argument


def add(commands) -> None:
    command = commands.add_parser(
        "explain",
        help="show which plan an operator runs by on a graph, and why",
        description=f"Show the plan, the other candidates with predicted and measured times, and the reason. FILE: "
        f"{FORMATS}",
    )
    command.add_argument("file", metavar="FILE", type=Path)
    command.add_argument("--op", default="sum", help="an operator, as of gsb tune (default: sum)")
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
    from ..ops.core.prepared import KINDS
    from ..structures.graph import Graph
    from ..structures.relational.graph import RelGraph
    from ..tuning.explain import Explanation, explain_structure, named
    from .files import FileError, load_graph, load_relations, on_device, set_threads

    set_threads(options.threads)
    try:
        kind = named(options.op).on
        load = {Graph: load_graph, RelGraph: load_relations}.get(kind)
        if load is None:
            raise ValueError(f"{options.op} runs on {KINDS[kind].words}, which no file holds: give it to gsb.explain")
        given = on_device(load(options.file), options.device)
        explanation = explain_structure(
            given, options.op, options.features, dtype=options.dtype, backward=options.backward
        )
    except (FileError, ValueError, BuildError) as error:
        print(f"gsb explain: {error}", file=sys.stderr)
        return 1
    print(explanation, end="")
    if options.plot is not None:
        try:
            if not isinstance(explanation, Explanation):
                raise ValueError(f"{options.op} has no candidates to draw")
            explanation.plot(options.plot)
        except (ImportError, OSError, ValueError) as error:
            print(f"gsb explain: no picture: {error}", file=sys.stderr)
            return 1
        print(f"written: {options.plot}")
    return 0
