"""The overhead benchmark end to end on a tiny graph."""

import json

import pytest

from benchmarks import cli, overhead


@pytest.mark.parametrize("framework, layers", [("dgl", ("sage", "gat")), ("pyg", ("gcn",))])
def test_the_command_writes_a_report(framework, layers, command, tmp_path, capsys):
    pytest.importorskip(cli.FRAMEWORKS[framework])
    code = command(overhead.main, "--budget", "0.1", "--nodes", "100", "--edges", "300", "--frameworks", framework,
                   "--hidden", "16", "--layers", *layers)
    assert code == 0
    report = json.loads((tmp_path / "overhead.json").read_text())
    assert (tmp_path / "overhead.png").read_bytes().startswith(b"\x89PNG")
    assert {(c["layer"], c["mode"]) for c in report["cells"]} == {
        (layer, mode) for layer in layers for mode in overhead.MODES}
    for cell in report["cells"]:
        medians = {name: timing["median"] for name, timing in cell["timings"].items()}
        assert set(medians) == {framework, framework + "+gsb"} and not cell["wrong"]
        assert cell["speedup"] == pytest.approx(medians[framework] / medians[framework + "+gsb"])
        evidence = cell["evidence"]
        assert evidence["overhead"] > 0 and evidence["ours"] + sum(evidence["fallbacks"].values()) > 0
    assert len(report["summary"]["worst"]) == min(5, len(report["cells"])) and all(cell["reason"] for cell in report["summary"]["worst"])
    assert "one edge" in capsys.readouterr().out


def test_hidden_must_suit_the_heads(capsys):
    with pytest.raises(SystemExit):
        overhead.arguments(["--hidden", "10"])
    assert "multiples of the 4 heads" in capsys.readouterr().err
    assert overhead.arguments(["--hidden", "10", "--layers", "gcn"]).hidden == [10]


def test_the_small_graph_has_its_size():
    graph = overhead.small_graph(3_000, 10_000, 0)
    assert graph.shape == (3_000, 3_000) and graph.num_edges == 10_000
