"""``pyg_lib.home``: the folder where pyg-lib keeps matrices that its benchmarks load."""

from __future__ import annotations

import os
from pathlib import Path

_VARIABLE = "PYG_LIB_HOME"
_given: str | None = None


def get_home_dir() -> str:
    """Return the folder that was set, else that of ``PYG_LIB_HOME``, else ``~/.cache/pyg_lib``."""
    return _given or str(Path(os.environ.get(_VARIABLE, "~/.cache/pyg_lib")).expanduser())


def set_home_dir(path: str) -> None:
    """Set the folder."""
    global _given
    _given = path


__all__ = ["get_home_dir", "set_home_dir"]
