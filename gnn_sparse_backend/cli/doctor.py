"""``gsb doctor``: whether what kernels rely on works here."""

from __future__ import annotations

import argparse
import json
import sys

from .findings import ABSENT, BROKEN, OK
from .tables import Cell, show

_STYLES = {OK: "green", ABSENT: "yellow", BROKEN: "bold red"}


def add(commands) -> None:
    command = commands.add_parser(
        "doctor",
        help="show versions, targets, threads and the kernel cache, and whether they work",
        description="Show versions, targets, threads and the kernel cache. The exit code is 1 when something is "
        "broken.",
    )
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """1 when something that a user relies on is broken, otherwise 0."""
    from . import examine

    findings = examine.examine()
    if options.json:
        json.dump(examine.to_dict(findings), sys.stdout, indent=2)
        print()
        return examine.exit_code(findings)
    rows: list[list[Cell]] = []
    group = None
    for finding in findings:
        if group is not None and finding.group != group:
            rows.append([])
        begins = finding.group if finding.group != group else ""
        rows.append([begins, finding.name, (finding.state, _STYLES[finding.state]), finding.text])
        group = finding.group
    show(rows)
    broken = [f"{finding.group}: {finding.name}" for finding in findings if finding.state == BROKEN]
    print(f"\nbroken: {', '.join(broken)}" if broken else "\nEverything that kernels rely on works.")
    return examine.exit_code(findings)
