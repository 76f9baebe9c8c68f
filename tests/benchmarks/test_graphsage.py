"""The training benchmark end to end on a tiny graph: all variants train alike, and the report says so."""

import json

import pytest

from benchmarks import graphsage
from benchmarks.support import cli
from models import data


@pytest.mark.slow
@pytest.mark.parametrize("framework", cli.FRAMEWORKS)
def test_the_command_writes_a_report(framework, command, tmp_path, capsys):
    pytest.importorskip(cli.FRAMEWORKS[framework])
    code = command(
        graphsage.main,
        "--quick",
        "--budget",
        "0.1",
        "--nodes",
        "300",
        "--edges",
        "2000",
        "--frameworks",
        framework,
        "--hidden",
        "16",
        "--batches",
        "2",
        "--batch-size",
        "40",
        "--fanouts",
        "3",
        "3",
    )
    assert code == 0
    report = json.loads((tmp_path / "graphsage.json").read_text())
    assert (tmp_path / "graphsage.png").read_bytes().startswith(b"\x89PNG")
    cell, sampled = report["cells"]
    assert (cell["framework"], cell["layers"], cell["hidden"]) == (framework, 2, 16)
    medians = {name: timing["median"] for name, timing in cell["timings"].items()}
    assert cell["ratio"] == pytest.approx(medians["framework"] / medians["backend"])
    assert cell["best_ours"] in graphsage.OURS and cell["best_peer"] not in graphsage.OURS
    assert cell["speedup"] == pytest.approx(medians[cell["best_peer"]] / medians[cell["best_ours"]])
    assert all(timing["samples"] >= 5 for timing in cell["timings"].values())
    assert cell["loss_difference"] < 1e-4
    # an aggregation in each layer
    assert cell["evidence"]["ours"] >= 2 and cell["evidence"]["rest"] > 0 and cell["evidence"]["overhead"] > 0
    assert cell["roofline_compulsory"] == pytest.approx(cell["bound_compulsory"] / medians[cell["best_ours"]])
    assert cell["reason"] in [place["reason"] for place in report["summary"]["worst"]]
    assert "2,000 edges" in report["dataset"] and framework in capsys.readouterr().out
    assert (sampled["batches"], sampled["layers"]) == ("2 batches, sampled 3-3", 2)
    # two batches of two layers
    assert sampled["evidence"]["ours"] >= 4 and 0 < sampled["sampling"] < sampled["timings"]["framework"]["median"]
    assert sampled["loss_difference"] is None if framework == "dgl" else sampled["loss_difference"] < 1e-4


def test_sampled_epochs_are_whole_by_default():
    assert (
        graphsage.arguments([]).batches is None and graphsage.arguments(["--quick"]).batches == graphsage.QUICK_BATCHES
    )
    assert graphsage._batches(graphsage.arguments([])) == "whole epoch, sampled 10-10"
    assert graphsage._batches(graphsage.arguments(["--batches", "3"])) == "3 batches, sampled 10-10"
    with pytest.raises(SystemExit):
        graphsage.arguments(["--layers", "--batches", "0"])


def test_all_training_nodes_are_in_a_whole_epoch():
    dataset = data.load("generated", "", nodes=300, edges=2000)
    for batches, seen in ((None, int(dataset.train.sum())), (2, 80)):
        training = graphsage.SampledTraining(
            "pyg",
            dataset,
            fanouts=(3, 3),
            batch_size=40,
            batches=batches,
            hidden=16,
            dropout=0.0,
            backend=False,
            reuse=False,
            seed=0,
        )
        assert sum(len(seeds) for seeds in training._batches(training._train)) == seen
