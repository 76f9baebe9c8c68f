"""Planting a fault in a copy of the tree, and running the tests that ought to notice."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gnn_sparse_backend.compiler.cache import DiskCache, cache_dir
from gnn_sparse_backend.compiler.packs.toolchain import toolchain

from .fault import PACKAGE, ROOT, Fault

COMPILER = f"{PACKAGE}/compiler/"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
# What pytest exits with: all passed, some failed, the collection failed.
_PASSED, _FAILURES, _INTERRUPTED = 0, 1, 2


@dataclass(frozen=True)
class Outcome:
    """found_by: the first test that failed; "" if all passed. seconds: of the run of pytest."""

    found_by: str
    seconds: float


def run(fault: Fault, planted: bool = True, timeout: float = 900.0) -> Outcome:
    """Run the tests of a fault's area in a copy of the tree, with the fault planted or without it.

    Raises ValueError where the tree has not got the fault's line, RuntimeError where pytest cannot run the tests that
    it names. A run that takes longer than ``timeout`` seconds found nothing.
    """
    with tempfile.TemporaryDirectory(prefix="gsb-fault-") as scratch:
        tree, kernels = Path(scratch, "tree"), Path(scratch, "kernels")
        _copy_tree(tree)
        if planted:
            file = tree / fault.file
            file.write_text(fault.planted(file.read_text(encoding="utf-8")), encoding="utf-8")
        _copy_kernels(kernels, planted and fault.file.startswith(COMPILER))
        return _pytest(fault, tree, kernels, timeout)


def _copy_tree(folder: Path) -> None:
    """The files that git tracks, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def _copy_kernels(folder: Path, compiler_changed: bool) -> None:
    """A kernel cache of the run's own, since a faulty kernel must not stay with the user: with what the user has
    compiled, unless the fault is in the compiler, which knows no kernel of another one.
    """
    folder.mkdir(mode=0o700)
    if compiler_changed or not cache_dir().is_dir():
        return
    cache, versions = DiskCache(), dict(toolchain())
    for manifest in cache.entries():
        if dict(manifest.toolchain) == versions:
            # entries are never written to, only replaced: links are as good as copies
            copy = os.link if cache.root.stat().st_dev == folder.stat().st_dev else shutil.copy2
            shutil.copytree(cache.root / manifest.key, folder / manifest.key, copy_function=copy)


def _pytest(fault: Fault, tree: Path, kernels: Path, timeout: float) -> Outcome:
    # no options that select tests: it is the short run, as pytest's own configuration has it
    command = [sys.executable, "-m", "pytest", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", *fault.tests]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(tree), "GSB_CACHE_DIR": str(kernels)}
    begin = time.monotonic()
    # a session of its own, so that nothing that the tests have started is left behind
    started = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = started.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return Outcome("", time.monotonic() - begin)
    finally:
        _end(started)
    seconds, code = time.monotonic() - begin, started.returncode
    if code == _PASSED:
        return Outcome("", seconds)
    failed = _FAILED.search(output)
    if failed and code in (_FAILURES, _INTERRUPTED):
        return Outcome(failed[1], seconds)
    if code < 0:
        return Outcome(f"the process died of {signal.Signals(-code).name}", seconds)
    raise RuntimeError(f"{fault.name}: pytest ended with {code}:\n{output[-3000:]}")


def _end(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


__all__ = ["Outcome", "run"]
