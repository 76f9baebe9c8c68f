"""python -m benchmarks.planner.search: regret as defined, on known times, and a run from end to end."""

import io
import json

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks.planner import held_out
from benchmarks.planner import search as benchmark
from gnn_sparse_backend import Graph
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.planner.decisions import Decision
from gnn_sparse_backend.planner.problem import Problem

PROBLEM = Problem("sum:column", 10, 20, 30, 8, "float32", 1)
PLANS = [RowPlan(groups) for groups in range(1, 9)]


class Fake:
    """A decision whose plans take known seconds of a clock of its own."""

    def __init__(self, costs, predicted):
        self.costs, self.predicted, self.now = costs, predicted, 0.0

    def run(self, plan):
        self.now += self.costs[plan]

    @property
    def decision(self):
        return Decision("sum", PLANS[1], PROBLEM, lambda: "0" * 32, lambda: self.predicted, self.run)


def test_regret_of_known_times(tmp_path):
    costs = {plan: 1e-3 * (10 - plan.groups) for plan in PLANS}
    fake = Fake(costs, {plan: 1e-3 + 1e-6 * plan.groups for plan in PLANS})
    cell = benchmark.measure_decision(fake.decision, (1e9,), 1e9, tmp_path, lambda: fake.now)
    assert (cell["best"], cell["candidates"]) == ("8 groups", 8) and cell["best_seconds"] == pytest.approx(2e-3)
    expected = {"noise": 0.0, "rules": 9 / 2 - 1, "taken": 8 / 2 - 1, "predicted": 9 / 2 - 1, "1e+09 s": 0.0}
    assert cell["regret"] == pytest.approx(expected)
    summary = benchmark.summarise([{"op": "a", **cell}, {"op": "b", "regret": dict.fromkeys(expected, 0.0)}])
    assert summary["all"]["rules"] == pytest.approx({"mean": 1.75, "worst": 3.5})
    assert summary["b"]["rules"] == {"mean": 0.0, "worst": 0.0} and summary["all"]["kernels"] == 2


def test_from_end_to_end(tmp_path, monkeypatch, set_threads):
    set_threads(1)
    rng = np.random.default_rng(0)
    graph = Graph.from_coo(rng.integers(0, 30, 90), rng.integers(0, 20, 90), (30, 20))
    recipes = {"tiny": held_out.Recipe(lambda seed: graph, quick=True), "other": held_out.Recipe(lambda seed: 1 / 0)}
    monkeypatch.setattr(benchmark, "OPERATORS", {"spmm": (recipes, (("sum", 3),))})
    monkeypatch.setattr(benchmark, "calibrate", lambda threads: {})
    results = benchmark.run(["spmm"], (0.01,), quick=True, budget=0.1, threads=1, seed=0)
    assert [cell["kernel"] for cell in results["cells"]] == ["sum:column"] * 2, "forward and backward"
    assert all(min(cell["regret"].values()) >= 0 for cell in results["cells"])
    text = io.StringIO()
    benchmark.show(json.loads(json.dumps(results)), Console(file=text, width=200))
    assert "Regret, mean and worst" in text.getvalue() and "tiny" in text.getvalue()


GENERATED = [name for name in held_out.GRAPHS if name not in ("cora", "debian", "wordnet")]


@pytest.mark.parametrize("name", GENERATED)
def test_held_out_graphs_are_what_they_are_called(name):
    graph = held_out.GRAPHS[name].make(0)
    degrees = graph.in_degrees.double()
    assert 30_000 < graph.num_edges < 250_000
    away = graph.indices.long() - torch.arange(graph.shape[0]).repeat_interleave(degrees.long())
    what = {
        "uniform": degrees.std() < degrees.mean(),
        "power law": degrees.max() > 30 * degrees.mean(),
        "band": away.abs().max() <= 9,
        "batch": graph.shape[0] == graph.shape[1] and away.abs().max() < 40,
        "bipartite": graph.shape[0] != graph.shape[1],
        "few long rows": (degrees > 20_000).sum() == 3,
        "empty rows": (degrees == 0).double().mean() > 0.9,
    }
    assert what[name]
