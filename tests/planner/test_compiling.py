"""Compiling ahead of measuring: plans of all tasks side by side, a bar on a terminal, and what another process then
finds.
"""

import io
import json
import os
import subprocess
import sys
import threading

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen import BuildError
from gnn_sparse_backend.ops.core.plans import plan_of
from gnn_sparse_backend.ops.message import schedules_cpu as kernels
from gnn_sparse_backend.planner.candidates import trials
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.structures import build
from gnn_sparse_backend.tuning import precompile as precompile_module
from gnn_sparse_backend.tuning.tune import compile_plans
from gnn_sparse_backend.tuning.tuning_tasks import Task, tasks_of

pytestmark = pytest.mark.usefixtures("two_threads")
SOON = 1e9  # a deadline that never comes


def test_plans_of_different_tasks_are_compiled_side_by_side(graph, plans, monkeypatch):
    """Each of two tasks has one kernel, and neither goes on before both are being compiled."""
    met = threading.Barrier(2)
    passed = []

    def together(*_):
        met.wait(60)  # BrokenBarrierError where nobody else comes
        passed.append(threading.get_ident())
        raise BuildError("aggregate", "only who compiles is looked at")

    monkeypatch.setattr(kernels, "compile_program", together)
    tasks = [Task("sum", "forward", graph, width, torch.float32) for width in (37, 41)]
    compile_plans(tasks, SOON, clock=lambda: 0.0, plans=lambda problem: trials(problem)[:1])
    assert len(set(passed)) == 2


def test_precompile_compiles_all_tasks_at_once(graph, plans, monkeypatch):
    compiled = []
    monkeypatch.setattr(precompile_module, "compile_plans", lambda tasks, *_: compiled.append(list(tasks)))
    monkeypatch.setattr(precompile_module, "time_plans", lambda task, found, deadline: dict.fromkeys(found, 0.001))
    gsb.precompile(graph, (8, 16), ("sum", "max"), "3s", progress=False)
    assert [len(tasks) for tasks in compiled] == [len(tasks_of(graph, ("sum", "max"), (8, 16), torch.float32, True))]
    compiled.clear()
    gsb.precompile(graph, (8, 16), ("sum", "max"), 0, again=True, progress=False)
    assert not compiled, "no time"


def test_graphs_of_wide_indices_are_compiled_ahead_too(graph, plans, monkeypatch):
    monkeypatch.setattr(build, "INT32_LIMIT", 0)
    wide = gsb.Graph.from_coo(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 2]), (2, 3))
    assert wide.indices.dtype == torch.int64
    monkeypatch.undo()
    seen = []
    monkeypatch.setattr(
        Task, "runner", lambda self: lambda: seen.append((self.graph.indices.dtype, self.graph.indptr.dtype))
    )
    compile_plans(
        [Task("sum", "forward", g, 8, torch.float32) for g in (wide, graph)],
        SOON,
        clock=lambda: 0.0,
        plans=lambda problem: [RowPlan(1)],  # the same of both: a kernel differs by its indices alone
    )
    assert sorted(seen, key=str) == [(torch.int32,) * 2, (torch.int64,) * 2]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "stream, progress, shown", [(Terminal, True, True), (Terminal, False, False), (io.StringIO, True, False)]
)
def test_the_bar_is_shown_on_a_terminal(graph, plans, monkeypatch, stream, progress, shown):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "JUPYTER_COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    errors = stream()
    monkeypatch.setattr(sys, "stderr", errors)
    gsb.precompile(graph, 16, budget="1s", backward=False, progress=progress)
    said = errors.getvalue()
    assert ("sum, 16 features" in said and "1/1" in said and "\x1b[" in said) == shown, said
    assert "features" not in said or shown


CHILD = """
import json, sys
import numpy as np, torch
torch.set_num_threads(2)
from gnn_sparse_backend import Graph
from gnn_sparse_backend.ops.core.plans import plan_of, problem_of, structure_fingerprint
from gnn_sparse_backend.planner.choose import choose
rng = np.random.default_rng(0)
graph = Graph.from_coo(rng.integers(0, 900, 6000), rng.integers(0, 800, 6000), (900, 800))
problem = problem_of(graph, "sum:column", 32, torch.float32)
choice = choose(problem, lambda: structure_fingerprint(graph))
print(json.dumps([choice.source, str(choice.plan), str(plan_of(graph, "sum:column", 32, torch.float32))]))
"""


@pytest.mark.slow
def test_another_process_finds_what_was_measured(graph, plans):
    report = gsb.precompile(graph, 32, budget="2s", backward=False, progress=False)
    (measured,) = report.rows
    found = subprocess.run(
        [sys.executable, "-c", CHILD],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "GSB_CACHE_DIR": str(plans.path.parent)},
    )
    plan = plan_of(graph, "sum:column", 32, torch.float32)
    assert plan == measured.plan

    assert json.loads(found.stdout.splitlines()[-1]) == ["measured", str(plan), str(plan)]
