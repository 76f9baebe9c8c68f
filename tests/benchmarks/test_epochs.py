"""The benchmark of epochs end to end on a tiny graph: all variants train alike, and the report says so."""

import json

import pytest
import torch

from benchmarks import epochs
from benchmarks.layers.epochs.networks import KINDS, Network, edges_of
from benchmarks.support import cli
from models import data

SIZES = ["--nodes", "300", "--edges", "2000", "--hidden", "16", "--budget", "0.1"]


@pytest.mark.slow
@pytest.mark.parametrize("framework", cli.FRAMEWORKS)
def test_the_command_writes_a_report(framework, command, tmp_path, capsys):
    pytest.importorskip(cli.FRAMEWORKS[framework])
    few = ["--frameworks", framework, "--kinds", "gcn", "--parts", "full", "sampled", "--batches", "2"]
    assert command(epochs.main, *SIZES, *few, "--batch-size", "40", "--fanouts", "3", "3", "3") == 0
    report = json.loads((tmp_path / "epochs.json").read_text())
    assert (tmp_path / "epochs.png").read_bytes().startswith(b"\x89PNG")
    full, half, sampled, _ = report["cells"]
    assert (full["framework"], full["kind"], full["precision"], full["part"]) == (framework, "gcn", "float32", "full")
    medians = {name: timing["median"] for name, timing in full["timings"].items()}
    assert set(medians) == set(epochs.VARIANTS) and not full["wrong"]
    for key, (above, below, _) in epochs.RATIOS.items():
        assert full["ratios"][key] == pytest.approx(medians[above] / medians[below])
    assert full["loss_difference"] < 1e-4 and half["loss_difference"] < 0.1
    assert full["evidence"]["ours"] >= 3  # an aggregation in each layer
    assert epochs.COMPILED not in sampled["timings"] and sampled["ratios"]["same"] > 0
    assert "2,000 edges" in report["datasets"]["generated"] and framework in capsys.readouterr().out


@pytest.mark.parametrize("framework", cli.FRAMEWORKS)
@pytest.mark.parametrize("kind", KINDS)
def test_networks_are_of_the_frameworks_layers(framework, kind):
    pytest.importorskip(cli.FRAMEWORKS[framework])
    dataset = data.load("generated", "", nodes=300, edges=2000, seed=0)
    network = Network(framework, kind, (dataset.features.shape[1], 16, 5), 0.5)
    assert {type(layer).__module__.split(".")[0] for layer in network.layers} == {cli.FRAMEWORKS[framework]}
    logits = network.eval()(edges_of(framework, kind, dataset, 0), dataset.features)
    assert logits.shape == (300, 5) and torch.isfinite(logits).all()
