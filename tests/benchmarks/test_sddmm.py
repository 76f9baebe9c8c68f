"""The SDDMM benchmark end to end on a tiny graph: a full report, and wrong answers noticed."""
import json

import pytest

from benchmarks import graphs, sddmm
from benchmarks.generators import power_law
from benchmarks.graphs import BenchmarkGraph
from benchmarks.sddmm_peers import PyG, contenders
from benchmarks.sddmm_problem import MODES, Operands, Problem
from benchmarks.suite import CannotDo


@pytest.fixture(scope="module")
def tiny():
    return BenchmarkGraph.of("tiny", "generated", power_law(60, 400, 2.0, 30, seed=0))


def test_the_command_writes_a_full_report(command, tmp_path, monkeypatch, capsys):
    recipe = graphs.Recipe("generated", lambda seed: power_law(60, 400, 2.0, 30, seed), 400)
    monkeypatch.setitem(graphs.RECIPES, "pubmed", recipe)
    assert command(sddmm.main, "--quick", "--graphs", "pubmed", "--budget", "0.5") == 0
    report = json.loads((tmp_path / "sddmm.json").read_text())
    assert (tmp_path / "sddmm.png").read_bytes().startswith(b"\x89PNG")
    assert {(c["mode"], c["features"]) for c in report["cells"]} == {(m.name, f) for m in MODES for f in (32, 128)}
    for cell in report["cells"]:
        assert set(cell["timings"]) | set(cell["unable"]) == set(report["contenders"]) and not cell["wrong"]
        assert cell["bytes_gather"] > cell["bytes_compulsory"] > 0
    assert "Geometric mean" in capsys.readouterr().out


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_all_contenders_agree_with_float64(tiny, mode):
    problem = Problem.of(tiny, mode, Operands.random(tiny, 7))
    for contender in contenders():
        try:
            contender.prepare(tiny)
            results = contender.bind(problem)()
        except ImportError as missing:
            pytest.skip(f"{contender.name}: {missing}")
        except CannotDo:
            continue
        assert problem.mismatch(results) is None, contender.name


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.backward], ids=lambda mode: mode.name)
@pytest.mark.parametrize("result", range(3))
def test_a_wrong_answer_is_noticed(tiny, mode, result):
    problem = Problem.of(tiny, mode, Operands.random(tiny, 5))
    contender = PyG()
    contender.prepare(tiny)
    right = [r.detach().clone() for r in contender.bind(problem)()]
    assert problem.mismatch(tuple(right)) is None
    for spoil in (1.001, float("nan")):
        wrong = [r.clone() for r in right]
        wrong[result].view(-1)[wrong[result].abs().argmax()] *= spoil
        assert mode.results[result] in problem.mismatch(tuple(wrong))
    assert "shape" in problem.mismatch((right[0][:-1], *right[1:]))
    assert "instead of 3" in problem.mismatch(tuple(right[:2]))
