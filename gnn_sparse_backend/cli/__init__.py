"""The ``gsb`` command. Each subcommand is a function that takes the parsed arguments and returns the exit code.

Arguments are parsed before anything is imported that takes long: a typing mistake is told at once.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from ..spelling import meant
from . import cache, doctor, explain, pack, run, status, tune

COMMANDS = (doctor, status, run, tune, explain, cache, pack)
"""Modules with ``add(commands)``, which describes a command to argparse, and ``run(options)``, which gives the exit
code. They import what they do when they run.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors say which command was meant."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong is not None:
            message += meant(wrong[1], re.findall(r"[\w-]+", wrong[2]))
        super().error(message)

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Refuse arguments that are none of this command's."""
        self.error(f"unrecognized arguments: {' '.join(unknown)}{meant(unknown[0], self._option_string_actions)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; ``arguments`` without the program's name, by default those of the process. Returns the exit code."""
    options, unknown = build_parser().parse_known_args(arguments)
    if unknown:
        options.parser.refuse(unknown)
    try:
        return options.run(options)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        sys.stdout = None  # which Python would flush at its end
        return 0


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gsb", description="A staged sparse compiler for graph neural networks.")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")
    for each in COMMANDS:
        each.add(commands)
    told = commands.add_parser("version", help="print the version", description="Print the version.")
    told.set_defaults(run=lambda options: print(_version()) or 0)
    told = commands.add_parser("help", help="explain a command", description="Explain a command, or list all.")
    told.add_argument("about", nargs="?", choices=tuple(commands.choices), metavar="command")
    told.set_defaults(run=lambda options: commands.choices.get(options.about, parser).print_help() or 0)
    for each in commands.choices.values():
        each.set_defaults(parser=each)
    return parser


def _version() -> str:
    return f"gnn-sparse-backend {__version__}"
