"""python -m benchmarks.planner.__main__: regret as defined, and a run from end to end."""

import io
import json

import pytest
from rich.console import Console

from benchmarks import sddmm, spmm
from benchmarks.operators.suite import arguments as arguments_of
from benchmarks.planner import __main__ as planner
from benchmarks.planner import regret
from benchmarks.support import graphs, machine
from gnn_sparse_backend.planner.database import database


def cell(planned, best, rules, single, op="sum", complete=True):
    return {
        "graph": "g",
        "op": op,
        "width": 4,
        "planned": "a",
        "best": "b",
        "planned_seconds": planned,
        "best_seconds": best,
        "rules_seconds": rules,
        "single_seconds": single,
        "regret": planned / best - 1,
        "complete": complete,
    }


def test_regret_by_hand():
    # kernel x is 2 and 1 times the best, y is 1 and 8 times: x is the better one for everything
    summary = regret.summarise(
        [cell(1.0, 1.0, 1.5, {"x": 2.0, "y": 1.0}), cell(2.6, 2.0, 2.0, {"x": 2.0, "y": 16.0, "z": 2.0})]
    )
    assert summary["mean_regret"] == pytest.approx(0.15) and summary["worst_regret"] == pytest.approx(0.3)
    assert summary["mean_regret_of_rules"] == pytest.approx(0.25) and summary["worst_regret_of_rules"] == pytest.approx(
        0.5
    )
    assert (summary["single"]["kernel"], summary["single"]["cells"]) == ("x", 2), (
        "z was not measured in more than half of the cells"
    )
    assert summary["single"]["mean_regret"] == pytest.approx(0.5) and summary["single"][
        "worst_regret"
    ] == pytest.approx(1.0)
    assert [worst["regret"] for worst in summary["worst"]] == pytest.approx([0.3, 0.0])
    assert regret.summarise([]) == {}


def test_cells_that_lack_a_plan_are_counted_and_left_out():
    cells = [cell(1.3, 1.0, 1.5, {"x": 2.0}), cell(1.0, 1.0, 1.0, {"x": 9.0}, complete=False)]
    summary = regret.summarise(cells)
    assert (summary["cells"], summary["left_out"], summary["single"]["cells"]) == (1, 1, 1)
    assert summary["mean_regret"] == pytest.approx(0.3) and summary["single"]["mean_regret"] == pytest.approx(1.0)
    nothing = regret.summarise(cells[1:])
    assert (nothing["cells"], nothing["left_out"], nothing["mean_regret"], nothing["single"]) == (0, 1, None, None)


def test_the_single_kernel_of_each_operator():
    kernels = {"x": 2.0, "y": 4.0}, {"x": 2.0, "y": 1.0}, {"x": 8.0, "y": 2.0}, {"y": 1.0}, {"x": 4.0, "y": 1.0}
    cells = [cell(1.0, 1.0, 1.0, single, op) for single, op in zip(kernels, ("sum", "max", "max", "max", "max"))]
    found = regret.summarise(cells)
    # x lacks a cell: both are compared where both are
    assert (found["single"]["kernel"], found["single"]["cells"]) == ("y", 4)
    assert found["single"]["mean_regret"] == pytest.approx(1.0) and found["single"]["worst_regret"] == pytest.approx(
        3.0
    )
    assert {op: (best["kernel"], best["cells"]) for op, best in found["single_by_op"].items()} == {
        "sum": ("x", 1),
        "max": ("y", 3),
    }


@pytest.mark.slow
def test_a_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(planner, "calibrate", lambda threads: {})
    before = database._database
    assert command(planner.main, "--graphs", "citeseer", "--widths", 4, "--edges", 10_000, "--budget", 1) == 0
    assert database._database is before, "the user's database is back"
    report = json.loads((tmp_path / "planner.json").read_text())
    assert [(cell["graph"], cell["op"], cell["width"]) for cell in report["cells"]] == [
        ("citeseer", op, 4) for op in ("sum", "weighted_sum", "mean", "max")
    ]
    for cell in report["cells"]:
        assert cell["source"] in ("model", "rules") and cell["regret"] >= 0
        assert cell["best_seconds"] == min(cell["seconds"].values()) > 0
        assert cell["complete"] and len(cell["single_seconds"]) == len(planner.SINGLE), "whatever the budget"
    (growth,) = report["growth"]
    assert growth["edges"] == 10_000 and growth["seconds"] > 0
    assert (tmp_path / "planner.png").read_bytes().startswith(b"\x89PNG")
    assert "Regret over 4 cells" in capsys.readouterr().out
    again = ("--graphs", "citeseer", "--widths", 8, "--edges", "--budget", 0.5, "--append")
    assert command(planner.main, *again) == 0
    report = json.loads((tmp_path / "planner.json").read_text())
    assert [cell["width"] for cell in report["cells"]] == [4] * 4 + [8] * 4 and report["growth"] == [growth]
    assert report["summary"]["cells"] == 8


def test_the_table_has_the_single_best_kernel():
    cells = [
        cell(1.0, 1.0, 1.5, {"x": 2.125, "y": 1.0}) | {"predicted_seconds": 1.0},
        cell(2.6, 2.0, 2.0, {"x": 2.375, "y": 16.0}) | {"predicted_seconds": 1.0},
    ]
    console = Console(record=True, width=200, file=io.StringIO())
    planner.show(
        {
            "machine": machine.describe(1),
            "cells": cells,
            "growth": [],
            "skipped": {},
            "summary": regret.summarise(cells),
        },
        console,
    )
    said = console.export_text()
    assert "single: x, the one kernel that is best for all cells together (2 compared)" in said
    assert "2125" in said and "2375" in said and "16000" not in said
    assert "Regret over 2 cells: mean 15 %" in said


NINE = {"cora", "citeseer", "pubmed", "wordnet", "debian", "ppi", "arxiv", "proteins", "reddit"}


def test_defaults_are_all_graphs_and_the_largest_at_fewer_features():
    options = planner.arguments([])
    assert set(options.graphs) == NINE and options.widths == [1, 4, 32, 64, 128, 256, 512]
    assert planner.OPS == ("sum", "weighted_sum", "mean", "max")
    assert graphs.widths_of("reddit", options.widths, options.widest) == [1, 4, 32, 64, 128]
    assert all(graphs.widths_of(name, options.widths, options.widest) == options.widths for name in NINE - {"reddit"})
    assert set(planner.arguments(["--without-large"]).graphs) == NINE - {"proteins", "reddit"}
    asked = planner.arguments(["--graphs", "reddit", "--widths", "256"])
    assert graphs.widths_of("reddit", asked.widths, asked.widest) == [256], "whoever asks for a width gets it"


@pytest.mark.parametrize("suite, widths", [(spmm, [1, 4, 32, 64, 128, 256, 512]), (sddmm, [32, 64, 128, 256, 512])])
def test_operators_are_measured_on_the_same_graphs(suite, widths):
    options = arguments_of(suite.SUITE, [])
    assert set(options.graphs) == NINE and options.features == widths
    assert graphs.widths_of("reddit", options.features, options.widest) == [width for width in widths if width <= 128]
    assert set(arguments_of(suite.SUITE, ["--without-large"]).graphs) == NINE - {"proteins", "reddit"}
    assert arguments_of(suite.SUITE, ["--features", "256"]).widest == {}
    assert arguments_of(suite.SUITE, ["--quick"]).graphs == ["cora", "pubmed"]
