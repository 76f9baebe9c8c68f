"""The ``gsb`` command. Each subcommand is a function that takes the parsed arguments and returns the exit code."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .. import __version__
from . import cache, doctor, explain, pack, tune

COMMANDS = (tune, explain, cache, pack)
"""Subcommands that read graphs and caches. Each module has ``add(commands)``, which describes a command to argparse,
and ``run(options)``, which gives the exit code."""
_STYLES = {doctor.OK: "green", doctor.ABSENT: "yellow", doctor.BROKEN: "bold red"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; ``arguments`` without the program's name, by default those of the process. Returns the exit code."""
    options = build_parser().parse_args(arguments)
    return options.run(options)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gsb", description="A staged sparse compiler for graph neural networks.")
    parser.add_argument("--version", action="version", version=f"gnn-sparse-backend {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")
    command = commands.add_parser(
        "doctor",
        help="show versions, targets, threads and the kernel cache, and whether they work",
        description="Show versions, targets, threads and the kernel cache. The exit code is 1 when something is "
        "broken.",
    )
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    command.set_defaults(run=run_doctor)
    for each in COMMANDS:
        each.add(commands)
    return parser


def run_doctor(options: argparse.Namespace) -> int:
    """``gsb doctor``."""
    findings = doctor.examine()
    if options.json:
        json.dump(doctor.to_dict(findings), sys.stdout, indent=2)
        print()
        return doctor.exit_code(findings)
    table = Table(show_header=False, box=None, pad_edge=False)
    for overflow in ("ellipsis", "ellipsis", "ellipsis", "fold"):
        table.add_column(overflow=overflow)
    group = None
    for finding in findings:
        if group is not None and finding.group != group:
            table.add_row()
        state = f"[{_STYLES[finding.state]}]{finding.state}[/]"
        table.add_row(finding.group if finding.group != group else "", finding.name, state, escape(finding.text))
        group = finding.group
    console = Console()
    console.print(table)
    broken = [f"{finding.group}: {finding.name}" for finding in findings if finding.state == doctor.BROKEN]
    console.print(
        f"\n[bold red]broken:[/] {escape(', '.join(broken))}"
        if broken
        else "\n[green]Everything that kernels rely on works.[/]"
    )
    return doctor.exit_code(findings)
