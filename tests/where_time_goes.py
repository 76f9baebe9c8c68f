"""A pytest plugin that says on what a run spent its time: ``pytest -p tests.where_time_goes``.

Seconds are those of the innermost kind of work alone: a kernel that is compiled within ``gradcheck`` counts as
compiling. With several worker processes the table adds them up, so its sum is about the duration times their number.
"""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

# (module, function): kind of work
WORK = {
    ("gnn_sparse_backend.compiler.compile", "stage3"): "lowering, stage I to III",
    ("gnn_sparse_backend.compiler.lowering", "lower"): "lowering, stage I to III",
    ("gnn_sparse_backend.compiler.codegen.build", "compiled"): "TVM's passes and LLVM",
    ("gnn_sparse_backend.compiler.codegen.loaded", "load"): "loading kernels",
    ("gnn_sparse_backend.compiler.codegen.cuda.nvrtc", "run_nvrtc"): "NVRTC",
    ("gnn_sparse_backend.compiler.position.interpret", "run_position"): "interpreting stage II",
    ("torch.autograd.gradcheck", "gradcheck"): "gradcheck",
    ("torch.autograd.gradcheck", "gradgradcheck"): "gradcheck",
    ("torch._dynamo.convert_frame", "_compile"): "torch.compile",
}
_STARTED = time.perf_counter()
_seconds: Counter[str] = Counter()
_lock = threading.Lock()
_local = threading.local()


def _charged(function, kind_of):
    """`function`, whose time counts as ``kind_of(*arguments)`` but for what is charged within it."""

    @functools.wraps(function)
    def call(*arguments, **options):
        outer = getattr(_local, "inside", None)
        _local.inside, started = 0.0, time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            took = time.perf_counter() - started
            with _lock:
                _seconds[kind_of(*arguments)] += took - _local.inside
            _local.inside = None if outer is None else outer + took

    return call


def _child(process, *_) -> str:
    command = process.args if isinstance(process.args, (str, bytes)) else process.args[0]
    return f"waiting for {Path(str(command).split()[0]).name}"


def _replace_everywhere(function, by) -> None:
    """In every module that has imported it by name, too."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is function:
                setattr(module, name, by)


def pytest_collection_finish() -> None:
    _seconds["imports and collection"] += time.perf_counter() - _STARTED
    for (module, name), kind in WORK.items():
        function = getattr(importlib.import_module(module), name)
        _replace_everywhere(function, _charged(function, lambda *_, kind=kind: kind))
    for name in ("wait", "communicate"):
        setattr(subprocess.Popen, name, _charged(getattr(subprocess.Popen, name), _child))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    started = time.perf_counter()
    try:
        return (yield)
    finally:
        _seconds["all tests"] += time.perf_counter() - started


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    _seconds.update(Counter(getattr(node, "workeroutput", {}).get("where_time_goes", {})))


def pytest_sessionfinish(session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["where_time_goes"] = dict(_seconds)


def pytest_terminal_summary(terminalreporter) -> None:
    apart = {"all tests", "imports and collection"}
    known = sum(seconds for kind, seconds in _seconds.items() if kind not in apart)
    rows = {kind: s for kind, s in _seconds.items() if kind != "all tests"} | {
        "the rest: tests themselves": _seconds["all tests"] - known
    }
    table = Table("work", "seconds", title="where the time went, all processes")
    for kind, seconds in sorted(rows.items(), key=lambda row: -row[1]):
        table.add_row(kind, f"{seconds:.1f}")
    Console(file=terminalreporter._tw._file, width=80).print(table)
