"""Scorch itself, where somebody has built it: PyPI's ``scorch`` is another project.

git clone https://github.com/bobbyyyan/scorch && cd scorch
python setup.py build_ext --inplace
python -m benchmarks.scorch --scorch .
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from benchmarks.support.cells import Unable

NEEDED = ("STensor", "matmul", "einsum", "compile")
_found: list[ModuleType | str] = []


def use(checkout: Path | None) -> str | None:
    """Import Scorch from a checkout that was built in place. Returns why that cannot be, None where it can."""
    _found[:] = [_imported(checkout)]
    return _found[0] if isinstance(_found[0], str) else None


def scorch() -> ModuleType:
    """The module. Raises Unable where there is none."""
    module = _found[0] if _found else "nobody has said where it is"
    if isinstance(module, str):
        raise Unable(module)
    return module


def _imported(checkout: Path | None) -> ModuleType | str:
    if checkout is None:
        return "not given: build it, and say where with --scorch CHECKOUT"
    sys.path.insert(0, str(checkout / "src"))  # the package, and beside it the extension
    try:
        module = importlib.import_module("scorch")
    except ImportError as error:
        return f"{checkout}: {error}"
    lacking = [name for name in NEEDED if not hasattr(module, name)]
    return f"{module.__file__} is another project's: it has no {', '.join(lacking)}" if lacking else module
