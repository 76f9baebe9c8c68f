"""The training benchmark end to end on a tiny graph: both variants train alike, and the report says so."""

import importlib.util
import json

import pytest
import torch

from benchmarks import graphsage


@pytest.mark.parametrize("framework", graphsage.FRAMEWORKS)
def test_the_command_writes_a_report(framework, tmp_path, monkeypatch, capsys):
    if importlib.util.find_spec(graphsage.FRAMEWORKS[framework]) is None:
        pytest.skip(f"{graphsage.FRAMEWORKS[framework]} is not installed")
    threads = torch.get_num_threads()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"):
        monkeypatch.setenv(variable, str(threads))
    code = graphsage.main(["--quick", "--budget", "0.1", "--nodes", "300", "--edges", "2000", "--frameworks", framework,
                           "--hidden", "16", "--threads", str(threads), "--out", str(tmp_path)])
    assert code == 0
    report = json.loads((tmp_path / "graphsage.json").read_text())
    (row,) = report["rows"]
    assert (row["framework"], row["layers"], row["hidden"]) == (framework, 2, 16)
    medians = {name: timing["median"] for name, timing in row["timings"].items()}
    assert row["ratio"] == pytest.approx(medians["framework"] / medians["backend"])
    assert all(timing["samples"] >= 5 for timing in row["timings"].values())
    assert row["loss_difference"] < 1e-4
    assert sum(operator["ours"] for operator in report["status"]["calls"][framework].values()) >= 2 * 6
    assert "2,000 edges" in report["dataset"] and report["machine"]["threads"] == threads
    assert framework in capsys.readouterr().out
