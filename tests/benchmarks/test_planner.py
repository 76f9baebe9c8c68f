"""python -m benchmarks.planner: regret as defined, and a run from end to end."""

import json

import pytest

from benchmarks import planner
from gnn_sparse_backend.planner.database import database


def cell(planned, best, rules, single):
    return {"graph": "g", "op": "sum", "width": 4, "planned": "a", "best": "b", "planned_seconds": planned, "best_seconds": best,
            "rules_seconds": rules, "single_seconds": single, "regret": planned / best - 1}


def test_regret_by_hand():
    # kernel x is 2 and 1 times the best, y is 1 and 8 times: x is the better one for everything
    summary = planner.summarise([cell(1.0, 1.0, 1.5, {"x": 2.0, "y": 1.0}), cell(2.6, 2.0, 2.0, {"x": 2.0, "y": 16.0, "z": 2.0})])
    assert summary["mean_regret"] == pytest.approx(0.15) and summary["worst_regret"] == pytest.approx(0.3)
    assert summary["mean_regret_of_rules"] == pytest.approx(0.25) and summary["worst_regret_of_rules"] == pytest.approx(0.5)
    assert summary["single_kernel"] == "x", "z was not measured everywhere"
    assert summary["mean_regret_of_single"] == pytest.approx(0.5) and summary["worst_regret_of_single"] == pytest.approx(1.0)
    assert [worst["regret"] for worst in summary["worst"]] == pytest.approx([0.3, 0.0])
    assert planner.summarise([]) == {}


def test_a_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(planner, "calibrate", lambda threads: {})
    before = database._database
    assert command(planner.main, "--graphs", "citeseer", "--widths", 4, "--edges", 10_000, "--budget", 1) == 0
    assert database._database is before, "the user's database is back"
    report = json.loads((tmp_path / "planner.json").read_text())
    assert [(cell["graph"], cell["op"], cell["width"]) for cell in report["cells"]] == [
        ("citeseer", "sum", 4), ("citeseer", "weighted_sum", 4)]
    for cell in report["cells"]:
        assert cell["source"] in ("model", "rules") and cell["regret"] >= 0
        assert cell["best_seconds"] == min(cell["seconds"].values()) > 0
    growth, = report["growth"]
    assert growth["edges"] == 10_000 and growth["seconds"] > 0
    assert (tmp_path / "planner.png").read_bytes().startswith(b"\x89PNG")
    assert "Regret over 2 cells" in capsys.readouterr().out
    again = ("--graphs", "citeseer", "--widths", 8, "--edges", "--budget", 0.5, "--append")
    assert command(planner.main, *again) == 0
    report = json.loads((tmp_path / "planner.json").read_text())
    assert [cell["width"] for cell in report["cells"]] == [4, 4, 8, 8] and report["growth"] == [growth]
    assert report["summary"]["cells"] == 4
