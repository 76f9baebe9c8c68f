"""The attention benchmark end to end on a tiny graph, and its arithmetic."""

import json

import pytest
import torch

from benchmarks import attention_layers
from benchmarks.layers import contenders
from benchmarks.support import cli, memory
from benchmarks.support.generators import power_law
from benchmarks.support.graphs import BenchmarkGraph

SHAPE = {"features": 8, "heads": 2, "width": 4, "seed": 0}


@pytest.fixture
def frameworks():
    for requirement in cli.FRAMEWORKS.values():
        pytest.importorskip(requirement)
    return tuple(cli.FRAMEWORKS)


@pytest.fixture(scope="module")
def tiny():
    return BenchmarkGraph.of("tiny", "generated", power_law(60, 300, 2.0, 30, seed=0))


@pytest.mark.slow
def test_the_command_writes_a_full_report(frameworks, command, tmp_path, small_pubmed, monkeypatch, capsys):
    peaks = {"dgl": 300, "dgl+gsb": 200, "pyg": 800, "pyg+gsb": 100}
    # starting a process takes seconds
    monkeypatch.setattr(
        memory,
        "in_child",
        lambda function, name, kind, graph, shapes, threads: [{"step": peaks[name], "held": 1} for _ in shapes],
    )
    code = command(
        attention_layers.main,
        "--quick",
        "--budget",
        "0.2",
        "--features",
        "8",
        "--width",
        "8",
        "--heads",
        "1",
        "2",
        "--layers",
        "gat",
    )
    assert code == 0
    report = json.loads((tmp_path / "attention_layers.json").read_text())
    assert (tmp_path / "attention_layers.png").read_bytes().startswith(b"\x89PNG")
    names = ["dgl", "dgl+gsb", "pyg", "pyg+gsb"]
    assert report["contenders"] == names
    assert {(c["layer"], c["heads"], c["width"]) for c in report["cells"]} == {("gat", 1, 8), ("gat", 2, 4)}
    for cell in report["cells"]:
        medians = {name: timing["median"] for name, timing in cell["timings"].items()}
        assert set(medians) == set(names) and not cell["wrong"]
        assert cell["speedup"] == pytest.approx(
            min(medians["dgl"], medians["pyg"]) / min(medians["dgl+gsb"], medians["pyg+gsb"])
        )
        assert cell["ratios"] == {f: pytest.approx(medians[f] / medians[f + "+gsb"]) for f in ("dgl", "pyg")}
        assert {name: entry["step"] for name, entry in cell["memory"].items()} == peaks
        assert cell["memory_ratio"] == 3.0 and cell["memory_ratios"] == {"dgl": 1.5, "pyg": 8.0}
        assert all(timing["first_call"] > 0 and timing["opening"] > 0 for timing in cell["timings"].values())
        assert cell["evidence"]["ours"] > 0 and cell["evidence"]["rest"] > 0
        assert cell["reason"] and cell["binds"] in ("memory", "arithmetic") and cell["roofline_compulsory"] > 0
    summary = report["summary"]
    overall = [cell["speedup"] for cell in report["cells"]]
    assert summary["geometric_mean"] == pytest.approx((overall[0] * overall[1]) ** 0.5)
    assert summary["memory"] == pytest.approx(3.0)
    assert summary["memory_frameworks"] == pytest.approx({"dgl": 1.5, "pyg": 8.0})
    assert set(summary["frameworks"]) == {"dgl", "pyg"}
    assert len(summary["worst"]) == 2
    printed = capsys.readouterr().out
    assert "peak memory" in printed and summary["worst"][0]["where"] in printed


def test_graphs_without_data_are_skipped_with_words(frameworks, command, no_data, capsys):
    assert command(attention_layers.main, "--graphs", "wordnet", "debian") == 1
    printed = capsys.readouterr().out
    assert "wordnet skipped" in printed and "debian skipped" in printed and "GSB_DATA" in printed


def test_defaults_are_the_real_graphs_and_a_large_one():
    options = attention_layers.arguments([])
    assert options.graphs == ["wordnet", "debian", "power-law"] and options.heads == [1, 4, 8]
    assert options.features == options.width == 64 and options.threads == 2


def test_heads_must_divide_the_width(capsys):
    with pytest.raises(SystemExit):
        attention_layers.arguments(["--width", "10", "--heads", "4"])
    assert "multiple of every --heads [4]" in capsys.readouterr().err


@pytest.mark.slow
def test_a_wrong_answer_and_a_failure_are_named_and_not_timed(frameworks, tiny, limits, monkeypatch):
    steps = attention_layers.make_steps(frameworks, "gat", tiny, SHAPE, peers=True)
    right = steps["pyg+gsb"].step
    monkeypatch.setattr(steps["pyg+gsb"], "step", lambda: tuple(result + 1 for result in right()), raising=False)

    def fails():
        raise RuntimeError("no kernel")

    monkeypatch.setattr(steps["dgl+gsb"], "step", fails, raising=False)
    monkeypatch.setattr(attention_layers, "make_steps", lambda *_, peers: steps if peers else {})
    cell = attention_layers.measure_cell(tiny, "gat", SHAPE, frameworks, limits, 0.01)
    assert cell["wrong"]["dgl+gsb"] == "RuntimeError: no kernel"
    assert cell["wrong"]["pyg+gsb"].startswith("unlike pyg: y is off")
    nothing = {"dgl": None, "pyg": None}
    assert set(cell["timings"]) == {"dgl", "pyg"} and cell["speedup"] is None and cell["ratios"] == nothing
    summary = attention_layers.summarise([cell | {"memory_ratio": None, "memory_ratios": nothing}], frameworks)
    assert summary["wrong"][0]["where"] == "tiny, gat, heads = 2" and summary["geometric_mean"] is None


def test_without_its_framework_an_answer_is_compared_with_the_other():
    names = ("y", "dx", "d weight")
    answer = (torch.ones(3, 2), torch.ones(3, 2), torch.ones(5))
    other = (torch.ones(3, 2), torch.ones(3, 2), torch.ones(7))
    assert attention_layers._mismatch("pyg+gsb", names, answer, {"dgl": other}) is None
    assert "unlike dgl: y" in attention_layers._mismatch("pyg+gsb", names, (answer[0] + 1, *answer[1:]), {"dgl": other})
    assert "unlike pyg: d weight" in attention_layers._mismatch("pyg+gsb", names, answer, {"dgl": answer, "pyg": other})
    assert "no framework alone" in attention_layers._mismatch("dgl+gsb", names, answer, {})


def test_memory_ratios_compare_the_least_of_each_side():
    found = {
        "dgl": {"step": 400, "held": 1},
        "dgl+gsb": {"step": 200, "held": 1},
        "pyg": {"error": "killed"},
        "pyg+gsb": {"step": 100, "held": 9},
    }
    cell = attention_layers.with_memory({}, found, ("dgl", "pyg"))
    assert cell["memory_ratio"] == 4.0 and cell["memory_ratios"] == {"dgl": 2.0, "pyg": None}
    found["pyg+gsb"] = {"step": 0, "held": 0}
    assert attention_layers.with_memory({}, found, ("dgl", "pyg"))["memory_ratio"] is None


def test_a_child_that_dies_leaves_the_reason(monkeypatch, tiny):
    def dies(*_):
        raise memory.CannotMeasure("killed")

    monkeypatch.setattr(memory, "in_child", dies)
    assert attention_layers.measure_memory(["dgl"], "gat", tiny, [SHAPE] * 2, 1) == [{"dgl": {"error": "killed"}}] * 2


@pytest.mark.slow
def test_a_child_measures_a_step(frameworks, tiny):
    (found,) = memory.in_child(attention_layers.step_memory, "pyg", "gat", tiny, [SHAPE], 1)
    assert set(found) == {"step", "held"} and found["step"] >= 0


def test_contenders_and_their_frameworks():
    assert contenders.names(["dgl", "pyg"]) == ["dgl", "dgl+gsb", "pyg", "pyg+gsb"]
    assert contenders.ours(["dgl", "pyg"]) == ("dgl+gsb", "pyg+gsb")
    assert contenders.framework_of("dgl+gsb") == contenders.framework_of("dgl") == "dgl"


def test_the_backend_is_on_for_ours_alone(frameworks):
    import gnn_sparse_backend as gsb

    for name in contenders.names(frameworks):
        with contenders.context_of(name)():
            assert gsb.status().enabled == ((contenders.framework_of(name),) if "+" in name else ())
    assert gsb.status().enabled == ()
