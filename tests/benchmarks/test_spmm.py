"""The SpMM benchmark end to end on tiny graphs: a full report, honest about what is wrong or impossible."""

import json

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks import graphs, spmm, suite, summary
from benchmarks.generators import power_law
from benchmarks.graphs import BenchmarkGraph
from benchmarks.peers import SciPy, TorchCSR, contenders
from benchmarks.problem import MODES, Mode, Operands, Problem
from benchmarks.timing import Rules
from operator_suites import check_a_wrong_answer_is_noticed, check_all_agree

HASTY = Rules(budget_s=0.01, max_rounds=5, sample_s=1e-6)


@pytest.fixture(scope="module")
def tiny():
    return BenchmarkGraph.of("tiny", "generated", power_law(60, 400, 2.0, 30, seed=0))


def test_the_command_writes_a_full_report(command, tmp_path, monkeypatch, capsys):
    recipe = graphs.Recipe("generated", lambda seed: power_law(60, 400, 2.0, 30, seed), 400)
    monkeypatch.setitem(graphs.RECIPES, "pubmed", recipe)
    assert command(spmm.main, "--quick", "--graphs", "pubmed", "--budget", "0.5") == 0

    report = json.loads((tmp_path / "spmm.json").read_text())
    assert (tmp_path / "spmm.png").read_bytes().startswith(b"\x89PNG")
    assert set(report) == {"benchmark", "machine", "roofline", "contenders", "graphs", "preparation", "per_call", "cells", "summary",
                           "skipped"}
    assert {"cpu", "cores", "libraries", "threads", "date"} <= set(report["machine"])
    assert report["graphs"][0]["edges"] == 400
    assert {(c["mode"], c["features"]) for c in report["cells"]} == {(m.name, f) for m in MODES for f in (32, 128)}
    for cell in report["cells"]:
        assert set(cell["timings"]) | set(cell["unable"]) == set(report["contenders"]) and not cell["wrong"]
        medians = {name: timing["median"] for name, timing in cell["timings"].items()}
        peer = min((name for name in medians if name != "gsb"), key=medians.get)
        assert cell["best_peer"] == peer
        assert cell["speedup"] == pytest.approx(medians[peer] / medians["gsb"])
        assert cell["roofline_compulsory"] == pytest.approx(cell["bound_compulsory"] / medians["gsb"])
        assert cell["bytes_gather"] > cell["bytes_compulsory"] > 0 and cell["binds"] == "memory"
        assert cell["evidence"]["overhead"] == report["per_call"][cell["mode"]]["gsb"]
    overall = np.exp(np.mean([np.log(c["speedup"]) for c in report["cells"]]))
    assert report["summary"]["geometric_mean"] == pytest.approx(overall)
    assert len(report["summary"]["worst"]) == 5 and len(report["summary"]["small"]) == 16
    assert all(cell["reason"] for cell in report["summary"]["worst"])
    printed = capsys.readouterr().out
    assert "Geometric mean" in printed and "worst cells" in printed
    assert report["summary"]["worst"][0]["where"] in printed


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_all_contenders_agree_with_float64(tiny, mode):
    check_all_agree(contenders(), tiny, Problem.of(tiny, mode, Operands.random(tiny, 7)))


@pytest.mark.parametrize("result", range(3))
def test_a_wrong_answer_is_noticed(tiny, result):
    problem = Problem.of(tiny, Mode(weighted=True, backward=True), Operands.random(tiny, 5))
    check_a_wrong_answer_is_noticed(TorchCSR(torch.int64), tiny, problem, result)


class Liar(SciPy):
    name = "liar"

    def bind(self, problem):
        call = super().bind(problem)
        return lambda: (call()[0] + 1,)


def test_a_wrong_contender_is_named_and_never_the_best_peer(tiny, limits):
    running = [*contenders()[:1], Liar(), SciPy()]
    for contender in running:
        contender.prepare(tiny)
    cell = suite.measure_cell(spmm.SUITE, Problem.of(tiny, MODES[0], Operands.random(tiny, 4)), running, limits, HASTY)
    assert "wrong" in cell["wrong"]["liar"] and "liar" not in cell["timings"]
    assert cell["best_peer"] == "scipy"
    assert suite.summarise([cell])["wrong"]


def test_what_a_library_cannot_do_is_said(tiny, limits, monkeypatch):
    weighted = Problem.of(tiny, Mode(weighted=True, backward=True), Operands.random(tiny, 4))
    running = [SciPy(), TorchCSR(torch.int32)]
    for contender in running:
        contender.prepare(tiny)
    monkeypatch.setattr("benchmarks.peers.DENSE_GRADIENT_LIMIT", 100)
    cell = suite.measure_cell(spmm.SUITE, weighted, running, limits, HASTY)
    assert cell["timings"] == {} and cell["speedup"] is None and cell["roofline_gather"] is None
    assert "gradient" in cell["unable"]["scipy"] and "dense" in cell["unable"]["torch-i32"]


def test_summary_splits_small_and_large_cells():
    def cell(edges, ours, theirs):
        timings = {summary.OURS: {"median": ours}, "peer": {"median": theirs}}
        return {"where": "g", "graph": "g", "edges": edges, "mode": MODES[0].name, "features": 32, "timings": timings,
                "wrong": {}, "best_ours": summary.OURS, "best_peer": "peer", "speedup": theirs / ours, "reason": "r"}

    result = suite.summarise([cell(100, 3.0, 1.0), cell(20_001, 2.0, 1.0), cell(20_001, 1.0, 0.95)], small=20_000)
    assert [c["speedup"] for c in result["slow"]] == [0.5, 0.95]
    assert [c["difference"] for c in result["small"]] == [2.0]
    assert result["worst"][0]["speedup"] == pytest.approx(1 / 3)


def test_missing_data_are_skipped_with_the_reason(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("GSB_DATA", raising=False)
    found, skipped = graphs.load_available(["debian"], 0, Console())
    assert not found and "GSB_DATA" in skipped["debian"] and "debian skipped" in capsys.readouterr().out
    monkeypatch.setenv("GSB_DATA", str(tmp_path))
    assert "does not exist" in graphs.load_available(["wordnet"], 0, Console())[1]["wordnet"]
    with pytest.raises(ValueError, match="unknown graph 'nonsense'"):
        graphs.load("nonsense")


@pytest.mark.parametrize("name, nodes, edges", [
    ("cora", 2_708, 10_556), ("debian", 63_666, 390_266), ("wordnet", 117_659, 364_552)])
def test_real_graphs_have_their_documented_sizes(name, nodes, edges):
    try:
        graph = graphs.load(name)
    except graphs.Unavailable as missing:
        pytest.skip(str(missing))
    assert graph.shape == (nodes, nodes) and graph.num_edges == edges


def test_generated_stand_ins_have_their_sizes():
    graph = graphs.load("pubmed")
    assert graph.shape == (19_717, 19_717) and graph.num_edges == 88_648
    assert graph.describe()["max_in_degree"] <= 171
