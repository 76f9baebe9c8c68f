"""The SpMM benchmark end to end on tiny graphs: a full report, honest about what is wrong or impossible."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks import spmm
from benchmarks.operators import suite
from benchmarks.operators.peers import Ours, SciPy, TorchCSR, contenders, half_contenders
from benchmarks.operators.problem import MODES, Mode, Operands, Problem
from benchmarks.support import graphs, summary
from benchmarks.support.generators import power_law
from benchmarks.support.graphs import BenchmarkGraph
from benchmarks.support.timing import Rules
from tests.benchmarks.operator_suites import check_a_wrong_answer_is_noticed, check_all_agree

HASTY = Rules(budget_s=0.01, max_rounds=5, sample_s=1e-6)


@pytest.fixture(scope="module")
def tiny():
    return BenchmarkGraph.of("tiny", "generated", power_law(60, 400, 2.0, 30, seed=0))


def test_the_command_writes_a_full_report(command, tmp_path, small_pubmed, capsys):
    modes = [mode.name for mode in (Mode(False, False), Mode(True, True))]
    assert command(spmm.main, "--graphs", "pubmed", "--features", 8, 32, "--modes", *modes, "--budget", "0.5") == 0

    report = json.loads((tmp_path / "spmm.json").read_text())
    assert (tmp_path / "spmm.png").read_bytes().startswith(b"\x89PNG")
    assert set(report) == {
        "benchmark",
        "machine",
        "roofline",
        "contenders",
        "graphs",
        "preparation",
        "per_call",
        "cells",
        "summary",
        "skipped",
    }
    assert {"cpu", "cores", "libraries", "threads", "date"} <= set(report["machine"])
    assert report["graphs"][0]["edges"] == 400
    assert {(c["mode"], c["features"]) for c in report["cells"]} == {(mode, f) for mode in modes for f in (8, 32)}
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
    assert len(report["summary"]["worst"]) == 4 and len(report["summary"]["small"]) == 4
    assert all(cell["reason"] for cell in report["summary"]["worst"])
    printed = capsys.readouterr().out
    assert "Geometric mean" in printed and "worst cells" in printed
    assert report["summary"]["worst"][0]["where"] in printed


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_all_contenders_agree_with_float64(tiny, mode):
    check_all_agree(contenders(), tiny, Problem.of(tiny, mode, Operands.random(tiny, 7)))


@pytest.mark.parametrize("mode", spmm.HALF_MODES, ids=lambda mode: mode.name)
def test_half_types_are_rounded_and_no_worse(tiny, mode):
    """Our answers agree with float64 to the rounding of messages and results, and a relative error of 2 % does not."""
    problem = Problem.of(tiny, mode, Operands.random(tiny, 7))
    ours, exact = half_contenders()[:2]
    for contender in (ours, exact):
        contender.prepare(tiny)
        results = contender.bind(problem)()
        assert {r.dtype for r in results} == {torch.bfloat16 if contender is ours else torch.float32}
        assert problem.mismatch(results) is None
    for at, name in enumerate(mode.results):
        wrong = [r.detach().clone() for r in results]
        wrong[at].view(-1)[wrong[at].abs().argmax()] *= 1.02
        assert name in problem.mismatch(tuple(wrong))


@pytest.mark.slow
def test_the_command_compares_bfloat16_with_our_float32(command, tmp_path, small_pubmed):
    asked = ("--dtype", "bfloat16", "--graphs", "pubmed", "--modes", "max forward", "--budget", "0.2", "--features")
    assert command(spmm.main, *asked, 4) == 0 and command(spmm.main, *asked, 8, "--append") == 0
    report = json.loads((tmp_path / "spmm_bfloat16.json").read_text())
    assert [cell["features"] for cell in report["cells"]] == [4, 8] and report["summary"]["cells"] == 2
    assert {"gsb", "gsb-float32"} <= set(report["cells"][0]["timings"])


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


def test_memory_that_is_not_there_is_asked_for_in_words(tiny, limits, monkeypatch):
    """By our own call too: the results of a cell may exceed what there is."""
    problem = Problem.of(tiny, Mode(weighted=True, backward=True), Operands.random(tiny, 4))
    assert problem.result_bytes == 4 * (2 * 60 * 4 + 400)
    monkeypatch.setattr(suite, "MEMORY_SHARE", 1e-12)
    running = contenders()[:1]
    running[0].prepare(tiny)
    cell = suite.measure_cell(spmm.SUITE, problem, running, limits, HASTY)
    assert cell["timings"] == {} and "the results would need 0.0 GiB" in cell["unable"]["gsb"]


def test_a_peer_that_takes_long_is_called_once(tiny, limits, monkeypatch):
    monkeypatch.setattr(suite, "LONG_CALL_S", 0.0)
    running = [*contenders()[:1], SciPy()]
    for contender in running:
        contender.prepare(tiny)
    problem = Problem.of(tiny, MODES[0], Operands.random(tiny, 4))
    running[0].bind(problem)()
    hasty = Rules(budget_s=0.01, min_rounds=3, max_rounds=5, sample_s=1e-6, hopeless=1.0)
    cell = suite.measure_cell(spmm.SUITE, problem, running, limits, hasty)
    (slower,) = {"gsb", "scipy"} - {min(cell["timings"], key=lambda name: cell["timings"][name]["first_call"])}
    assert cell["timings"]["gsb"]["samples"] >= 2
    assert slower == "gsb" or cell["timings"]["scipy"]["samples"] == 1


def test_a_peer_that_was_beaten_is_not_called_for_more_features(tiny, limits, monkeypatch):
    monkeypatch.setattr(suite, "LONG_CALL_S", 3.0)
    before = {
        "graph": "tiny",
        "mode": MODES[0].name,
        "features": 4,
        "timings": {
            name: {"median": median}
            for name, median in {"gsb": 0.1, "dgl": 5.0, "scipy": 14.0, "pyg": 16.0, "edge-index": 2.9}.items()
        },
    }
    found = suite.beaten([before], "tiny", MODES[0].name, 8)
    assert found == {
        "scipy": "not called: 14 s a call at F = 4, 5 times the best peer's",
        "pyg": "not called: 16 s a call at F = 4, 6 times the best peer's",
    }
    for elsewhere in (("tiny", MODES[0].name, 4), ("tiny", MODES[1].name, 8), ("other", MODES[0].name, 8)):
        assert suite.beaten([before], *elsewhere) == {}
    running = [*contenders()[:1], SciPy()]
    running[0].prepare(tiny)  # the other one is not even bound
    problem = Problem.of(tiny, MODES[0], Operands.random(tiny, 8))
    cell = suite.measure_cell(spmm.SUITE, problem, running, limits, HASTY, left_out=found)
    assert list(cell["timings"]) == ["gsb"] and cell["unable"] == {"scipy": found["scipy"]}


def test_what_a_library_cannot_do_is_said(tiny, limits, monkeypatch):
    weighted = Problem.of(tiny, Mode(weighted=True, backward=True), Operands.random(tiny, 4))
    running = [SciPy(), TorchCSR(torch.int32)]
    for contender in running:
        contender.prepare(tiny)
    monkeypatch.setattr("benchmarks.operators.peers.DENSE_GRADIENT_LIMIT", 100)
    cell = suite.measure_cell(spmm.SUITE, weighted, running, limits, HASTY)
    assert cell["timings"] == {} and cell["speedup"] is None and cell["roofline_gather"] is None
    assert "gradient" in cell["unable"]["scipy"] and "dense" in cell["unable"]["torch-i32"]


def test_contenders_that_would_leave_no_memory_for_calls_are_left_out(tiny, limits, monkeypatch, calls_to):
    taken = calls_to(Ours, "prepare")
    memory = lambda: SimpleNamespace(total=100 << 30, available=(39 if taken else 50) << 30)
    monkeypatch.setattr(suite.psutil, "virtual_memory", memory)
    monkeypatch.setattr(suite, "per_call_cost", lambda *_: {MODES[0].name: {}})
    three = replace(spmm.SUITE, contenders=lambda: [*contenders()[:1], SciPy(), TorchCSR(torch.int32)], modes=MODES[:1])
    shares = SimpleNamespace(take=lambda cell: 0.1)
    report = suite.run(three, [tiny], [4], shares=shares, threads=1, limits=limits, rules=HASTY)
    assert list(report["preparation"]["tiny"]) == ["gsb"]
    assert (
        set(report["cells"][0]["unable"]) == {"scipy", "torch-i32"}
        and "left 39.0 GiB" in report["cells"][0]["unable"]["scipy"]
    )


def test_summary_splits_small_and_large_cells():
    def cell(edges, ours, theirs):
        timings = {summary.OURS: {"median": ours}, "peer": {"median": theirs}}
        return {
            "where": "g",
            "graph": "g",
            "edges": edges,
            "mode": MODES[0].name,
            "features": 32,
            "timings": timings,
            "wrong": {},
            "best_ours": summary.OURS,
            "best_peer": "peer",
            "speedup": theirs / ours,
            "reason": "r",
        }

    result = suite.summarise([cell(100, 3.0, 1.0), cell(20_001, 2.0, 1.0), cell(20_001, 1.0, 0.95)], small=20_000)
    assert [c["speedup"] for c in result["slow"]] == [0.5, 0.95]
    assert [c["difference"] for c in result["small"]] == [2.0]
    assert result["worst"][0]["speedup"] == pytest.approx(1 / 3)


def test_missing_data_are_skipped_with_the_reason(no_data, monkeypatch, capsys, tmp_path):
    found, skipped = graphs.load_available(["debian"], 0, Console())
    assert not found and "GSB_DATA" in skipped["debian"] and "debian skipped" in capsys.readouterr().out
    monkeypatch.setenv("GSB_DATA", str(tmp_path))
    assert "does not exist" in graphs.load_available(["wordnet"], 0, Console())[1]["wordnet"]
    with pytest.raises(ValueError, match="unknown graph 'nonsense'"):
        graphs.load("nonsense")


@pytest.mark.parametrize(
    "name, nodes, edges", [("cora", 2_708, 10_556), ("debian", 63_666, 390_266), ("wordnet", 117_659, 364_552)]
)
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
