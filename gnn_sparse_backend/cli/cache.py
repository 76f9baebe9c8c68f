"""``gsb cache ls|verify|clear``: the kernels on disk and the database of measured plans."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_ACTIONS = {
    "ls": "list the kernels and the measured plans",
    "verify": "read and hash everything; the exit code is 1 when something is damaged",
    "clear": "delete the kernels and the measured plans",
}


def add(commands) -> None:
    command = commands.add_parser(
        "cache",
        help="list, verify or clear kernels and measured plans",
        description="The kernels on disk and the measured plans of this user.",
    )
    actions = command.add_subparsers(required=True, metavar="action")
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        action.set_defaults(run=run, action=name)


def run(options: argparse.Namespace) -> int:
    """1 when something is damaged or the folder cannot be used, otherwise 0."""
    from ..compiler.cache import DiskCache, UnsafeCacheError
    from ..planner.database import PlanDatabase

    try:
        return {"ls": _list, "verify": _verify, "clear": _clear}[options.action](DiskCache(), PlanDatabase())
    except (UnsafeCacheError, OSError) as error:
        print(f"gsb cache: {error}", file=sys.stderr)
        return 1


def _list(kernels, plans) -> int:
    console = Console()
    entries = kernels.entries()
    columns = "kernel", "name", "target", "compiled in", "written"
    table = Table(*columns, title=f"{len(entries)} kernels in {kernels.root}", title_justify="left")
    for entry in entries:
        seconds = f"{entry.compile_seconds:.2f} s"
        table.add_row(entry.key[:12], escape(entry.name), escape(entry.target), seconds, entry.created)
    console.print(table)
    records = plans.records()
    columns = "structure", "size", "operator", "width", "threads", "fastest plan", "µs", "use"
    table = Table(*columns, title=f"{len(records)} measured problems in {plans.path}", title_justify="left")
    for record in records:
        problem = record.problem
        size = f"{problem.rows:,} x {problem.cols:,}, {problem.nnz:,}"
        use = "yes" if plans.usable(record) else record.machine
        if dict(record.versions) != plans.versions:
            use = "another version"
        table.add_row(
            record.fingerprint[:8],
            size,
            problem.kind,
            f"{problem.features} of {problem.dtype}",
            str(problem.threads),
            str(record.best),
            f"{record.seconds[0][1] * 1e6:,.1f}",
            use,
        )
    console.print(table)
    console.print(f"constants of the cost model: {'measured on this machine' if plans.calibrated else 'defaults'}")
    return 0


def _verify(kernels, plans) -> int:
    problems = [*kernels.verify(), *plans.verify()]
    for problem in problems:
        print(problem)
    print(
        f"{len(kernels.entries())} kernels, {len(plans.records())} measured problems: "
        f"{f'{len(problems)} damaged, rebuilt when next asked for' if problems else 'all good'}"
    )
    return int(bool(problems))


def _clear(kernels, plans) -> int:
    records = plans.clear()
    print(f"{kernels.clear()} kernels and {records} measured problems deleted")
    return 0
