"""``gsb pack``: the kernels that a script or a function uses, in one file."""

from __future__ import annotations

import argparse
import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from ..config import TARGETS


def add(commands) -> None:
    command = commands.add_parser(
        "pack",
        help="write the kernels that a script uses into one file, which needs no compiler",
        description="Run a script, or call a function, once for each target and number of threads, and write the "
        "kernels that it used into one file, for gsb.load_pack or GSB_PACK in processes without TVM.",
    )
    command.add_argument("work", help="a script, SCRIPT.py, or a function without arguments, package.module:function")
    command.add_argument("-o", "--output", type=Path, default=Path("kernels.gsb"), help="(default: kernels.gsb)")
    command.add_argument(
        "--target", default="native", help=f"one or several of {', '.join(TARGETS)}, with commas (default: native)"
    )
    command.add_argument("--threads", help="numbers of threads, with commas (default: 1 and those of PyTorch)")
    command.add_argument(
        "--args", nargs=argparse.REMAINDER, default=[], metavar="ARGUMENT", help="the script's: all that follows"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """1 where no pack could be made, otherwise 0."""
    from ..compiler.codegen import BuildError
    from ..compiler.packs import PackError
    from ..tuning.pack import pack

    try:
        threads = None if options.threads is None else [int(count) for count in options.threads.split(",")]
        made = pack(work_of(options.work, options.args), options.output, options.target.split(","), threads=threads)
    except (PackError, BuildError, ValueError, ImportError, FileNotFoundError) as error:
        print(f"gsb pack: {error}", file=sys.stderr)
        return 1
    print(made)
    return 0


def work_of(named: str, arguments: list[str]) -> Callable[[], object]:
    """What runs a script with its arguments, or calls a function ``package.module:function``.

    Raises FileNotFoundError, ImportError or ValueError where there is none.
    """
    module, colon, name = named.partition(":")
    if colon and not named.endswith(".py"):
        sys.path.insert(0, "")  # as python -m has it
        function = getattr(importlib.import_module(module), name, None)
        if not callable(function):
            raise ValueError(f"{module} has no function {name!r}")
        if arguments:
            raise ValueError(f"a function takes no arguments, got {' '.join(arguments)}")
        return function
    if not Path(named).is_file():
        raise FileNotFoundError(f"there is no script {named}")
    return lambda: _script(named, arguments)


def _script(path: str, arguments: list[str]) -> None:
    before = sys.argv, sys.path[:]
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as left:
        if left.code not in (None, 0):
            raise ValueError(f"{path} ended with {left.code!r}") from None
    finally:
        sys.argv, sys.path[:] = before
