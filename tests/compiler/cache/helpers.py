"""What the tests of the kernel caches and their worker processes share. Imports no TVM compiler: workers start fast."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.testing import assert_array_equal

from gnn_sparse_backend.compiler.cache import Kernel, KernelKey, KernelStore
from gnn_sparse_backend.compiler.codegen import load as load

PROGRAM, PLAN, TARGET = "program: b = a * 2\n", "plan: serial", "llvm-test"
ROOT = Path(__file__).parents[3]


class CopyBuild:
    """A build callback that copies a compiled library, and counts its calls."""

    def __init__(self, library: str | os.PathLike):
        self.library = library
        self.calls = 0

    def __call__(self, folder: Path) -> str:
        self.calls += 1
        shutil.copy(self.library, folder / "kernel.so")
        return "kernel.so"


def leave_number(note: Path) -> None:
    """Write the number of this process to ``note``, which whoever waits for it finds whole or not at all."""
    whole = note.with_suffix(".part")
    whole.write_text(str(os.getpid()))
    whole.replace(note)


def get(store: KernelStore, build, program: str = PROGRAM, **options) -> Kernel:
    return store.get(program, PLAN, TARGET, build, **options)


def key_of(program: str = PROGRAM) -> KernelKey:
    return KernelKey(program, PLAN, TARGET)


def assert_scales(kernel, factor: float = 2.0) -> None:
    """``kernel`` is ``main(m, a, b)`` with ``b[i] = a[i] * factor``."""
    a = np.random.default_rng(7).standard_normal(37).astype(np.float32)
    b = np.full_like(a, np.nan)
    kernel(a.size, a, b)
    assert_array_equal(b, a * np.float32(factor))


def start_worker(command: str, **arguments) -> subprocess.Popen:
    """Run ``worker.py`` in a fresh interpreter."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.compiler.cache.worker", command, json.dumps(arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish_worker(process: subprocess.Popen, timeout: float = 120.0) -> dict:
    """The JSON that a worker printed last; an AssertionError with its output if it failed."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    assert process.returncode == 0, f"worker exited with {process.returncode}\n{out}\n{err}"
    return json.loads(out.splitlines()[-1])
