"""The SDDMM benchmark end to end on a tiny graph: a full report, and wrong answers noticed."""

import json

import pytest

from benchmarks import sddmm
from benchmarks.operators.sddmm_peers import PyG, contenders
from benchmarks.operators.sddmm_problem import MODES, Operands, Problem
from benchmarks.support.generators import power_law
from benchmarks.support.graphs import BenchmarkGraph
from tests.benchmarks.operator_suites import check_a_wrong_answer_is_noticed, check_all_agree


@pytest.fixture(scope="module")
def tiny():
    return BenchmarkGraph.of("tiny", "generated", power_law(60, 400, 2.0, 30, seed=0))


@pytest.mark.slow
def test_the_command_writes_a_full_report(command, tmp_path, small_pubmed, capsys):
    assert command(sddmm.main, "--graphs", "pubmed", "--features", 8, 32, "--budget", "0.5") == 0
    report = json.loads((tmp_path / "sddmm.json").read_text())
    assert (tmp_path / "sddmm.png").read_bytes().startswith(b"\x89PNG")
    assert {(c["mode"], c["features"]) for c in report["cells"]} == {(m.name, f) for m in MODES for f in (8, 32)}
    for cell in report["cells"]:
        assert set(cell["timings"]) | set(cell["unable"]) == set(report["contenders"]) and not cell["wrong"]
        assert cell["bytes_gather"] > cell["bytes_compulsory"] > 0
    assert "Geometric mean" in capsys.readouterr().out


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_all_contenders_agree_with_float64(tiny, mode):
    check_all_agree(contenders(), tiny, Problem.of(tiny, mode, Operands.random(tiny, 7)))


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.backward], ids=lambda mode: mode.name)
@pytest.mark.parametrize("result", range(3))
def test_a_wrong_answer_is_noticed(tiny, mode, result):
    problem = Problem.of(tiny, mode, Operands.random(tiny, 5))
    check_a_wrong_answer_is_noticed(PyG(), tiny, problem, result)
