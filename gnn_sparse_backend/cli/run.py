"""``gsb run``: an unchanged script, or a module, with frameworks enabled."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path


def add(commands) -> None:
    command = commands.add_parser(
        "run",
        help="run a script with frameworks enabled, and print what ran here",
        description="Run an unchanged script, or a module, as Python does, with frameworks of gsb.enable enabled "
        "before its first import, and print gsb.status() at its end: what ran on kernels of this package, what a "
        "framework did itself, and why. The exit code is the script's.",
        epilog="gsb run --enable pyg,torch_scatter train.py --epochs 5",
    )
    command.add_argument(
        "--enable",
        default="pyg",
        metavar="NAMES",
        help="frameworks, with commas: dgl, pyg, spconv, or libraries that need not be installed, as torch_scatter "
        "(default: pyg)",
    )
    command.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="a module in the place of a script, and all that it takes, as python -m",
    )
    command.add_argument(
        "work", nargs=argparse.REMAINDER, metavar="SCRIPT ARGUMENTS", help="the script, and all that it takes"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """The exit code of the script; 2 where there is none, or a framework cannot be enabled."""
    from .. import enable, status

    name, *arguments = options.module or options.work or [""]
    if not name:
        print("gsb run: give a script, or -m and a module", file=sys.stderr)
        return 2
    if options.module is None and not Path(name).exists():
        print(f"gsb run: there is no script {name}", file=sys.stderr)
        return 2
    try:
        enable(*filter(None, options.enable.split(",")))
    except (ImportError, ValueError) as error:
        print(f"gsb run: {error}", file=sys.stderr)
        return 2
    try:
        return _run(name, arguments, options.module is not None)
    finally:
        print(status())


def _run(name: str, arguments: list[str], is_module: bool) -> int:
    """Run it as the main module, and return the exit code that it asks for."""
    sys.argv = [name, *arguments]
    try:
        if is_module:
            sys.path.insert(0, "")
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(name).resolve().parent))
            runpy.run_path(name, run_name="__main__")
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    return 0
