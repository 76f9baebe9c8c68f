"""Benchmarks with ``--device cuda`` as parts of the run: their ``main``, called in this process with arguments."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence

from benchmarks.gpu.told import FAILED, PREPARE, Told, first_line

Command = tuple[str, ...]
"""A module of ``benchmarks``, and its arguments."""


def run(told: Told, commands: Sequence[Command]) -> None:
    """Run them in their order. Their cells are recorded as they are written (`reports`)."""
    os.environ.setdefault("COLUMNS", "220")
    for number, (name, *arguments) in enumerate(commands):
        module = importlib.import_module(f"benchmarks.{name}")
        where = " ".join([name, *arguments])
        if where in told.done:
            continue
        print(f"--- {where}", flush=True)
        out = ["--out", str(told.work / str(number)), "--threads", str(min(16, os.cpu_count() or 1))]
        try:
            module.main(["--device", "cuda", *arguments, *out])
        except SystemExit as error:
            told.record(where, FAILED, why=f"refused its arguments: {error}")
        except Exception as error:  # the other commands are run all the same
            if told.mode == PREPARE:
                raise
            told.record(where, FAILED, why=first_line(error))
        else:
            told.record(where)
        told.check_gpu(where)
