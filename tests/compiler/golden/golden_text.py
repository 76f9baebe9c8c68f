"""Texts that are kept in this folder and compared exactly. With GSB_WRITE_GOLDEN=1 the tests write them instead: read
the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent


def check_golden(name: str, text: str) -> None:
    """Compare `text` with the file of this name."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("GSB_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} does not exist; run with GSB_WRITE_GOLDEN=1 and read it"
    assert text == path.read_text(encoding="utf-8"), (
        f"not what {path} says; if it should be, run with GSB_WRITE_GOLDEN=1"
    )


def tvm_text(function) -> str:
    """A TVM function as text, without the imports above it."""
    return function.script().split("\n\n", 1)[1] + "\n"


def before_and_after(before, after) -> str:
    """Two stage I programs, one below the other, and what was done."""
    steps = "".join(f"# {step}\n" for step in after.provenance[len(before.provenance) :])
    return f"{before.script()}\n{steps}\n{after.script()}"
