"""``gsb status``: what is installed, set and kept on disk here, at once. Whether it works `gsb doctor` tries."""

from __future__ import annotations

import argparse
import json
import os
import sys

from .tables import show

_SHOWN = ("apache-tvm", "torch", "torch-geometric", "dgl", "spconv")


def add(commands) -> None:
    command = commands.add_parser(
        "status",
        help="show at once what is installed, set and kept on disk",
        description="Show versions, the kernels on disk and the environment variables that are set, without trying "
        "them as gsb doctor does. What ran in a process is told there: print(gsb.status()).",
    )
    command.add_argument("--json", action="store_true", help="print it as JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """1 where the folder of kernels cannot be used, otherwise 0."""
    told, works = _told()
    if options.json:
        json.dump(told, sys.stdout, indent=2)
        print()
    else:
        show(list(told.items()))
        print("\nWhat ran in a process is told there: print(gsb.status()).\nWhether kernels work here: gsb doctor")
    return int(not works)


def _told() -> tuple[dict[str, str], bool]:
    """What is told, and whether the folder of kernels can be used."""
    from importlib import metadata

    from .. import __version__, config
    from ..compiler.cache.bound import bound
    from ..compiler.cache.disk import DiskCache, cache_dir
    from ..compiler.cache.errors import UnsafeCacheError
    from ..planner.words import size

    told = {"gnn-sparse-backend": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for distribution in _SHOWN:
        try:
            told[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            told[distribution] = "not installed"
    works = True
    told["kernel cache"] = str(cache_dir())
    try:
        told["kernels"] = f"{DiskCache().count():,}, of {size(bound())} at most"
    except (UnsafeCacheError, OSError, ValueError) as error:
        told["kernels"], works = str(error), False
    for variable in config.VARIABLES:
        if variable.name in os.environ:
            told[variable.name] = os.environ[variable.name]
    return told, works
