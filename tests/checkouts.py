"""Published networks: checkouts of their repositories in the folder ``GSB_CHECKOUTS``, each under its name.

    git clone https://github.com/open-mmlab/OpenPCDet checkouts/OpenPCDet
    GSB_CHECKOUTS=checkouts python -m pytest tests/integrations

Nothing of theirs is in this repository, and nothing in a checkout is changed. Modules are imported out of packages
whose ``__init__`` is not run: it would build extensions, and want data sets.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


def checkout(name: str) -> Path:
    """The folder of a repository; the test is skipped where it is not there."""
    folder = os.environ.get("GSB_CHECKOUTS")
    if not folder:
        pytest.skip("GSB_CHECKOUTS names no folder of checkouts")
    path = Path(folder) / name
    if not path.is_dir():
        pytest.skip(f"{folder} has no {name}")
    return path


@contextlib.contextmanager
def importing(root: Path, *packages: str, absent: tuple[str, ...] = ()) -> Iterator[None]:
    """Modules of the packages, which lie below ``root``, can be imported inside, and are gone afterwards.

    absent: modules that they import and do not use here.
    """
    before = dict(sys.modules)
    for name in packages:
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = package
    for name in absent:
        sys.modules.setdefault(name, ModuleType(name))
    try:
        yield
    finally:
        for name in set(sys.modules) - before.keys():
            if name in absent or name.partition(".")[0] in {each.partition(".")[0] for each in packages}:
                del sys.modules[name]


def load(module: str, name: str):
    """An attribute of a module."""
    return getattr(importlib.import_module(module), name)
