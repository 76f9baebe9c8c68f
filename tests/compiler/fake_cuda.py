"""The acted driver of the benchmarks (`acted_driver`), for tests: they are skipped where it cannot be made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.support.gpu import acted_driver
from benchmarks.support.gpu.acted_driver import COUNTED, environment

__all__ = ["COUNTED", "environment", "make", "run"]


def make(folder: Path, version: int = 13000, gpus: int = 0, more: str = COUNTED) -> Path:
    """`acted_driver.make`."""
    try:
        return acted_driver.make(folder, version, gpus, more)
    except acted_driver.CannotAct as reason:
        pytest.skip(str(reason))


def run(program: str, environment: dict[str, str]) -> list[str]:
    """Lines that a Python program prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=Path.cwd()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
