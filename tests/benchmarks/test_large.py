"""Training at the size of ogbn-products, on a ten-thousandth of it: the graph, and losses with and without us."""

from __future__ import annotations

import json
import sys
from fractions import Fraction

import numpy as np
import pytest

import gnn_sparse_backend as gsb
from benchmarks.large import __main__ as large
from benchmarks.large import data, epoch, reading
from benchmarks.support import memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured on Linux alone")
SCALE = Fraction(1, 10_000)


@pytest.fixture(autouse=True)
def off():
    yield
    gsb.disable()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    found = data.files(tmp_path_factory.mktemp("graph"), SCALE, 0)
    data.write(found, SCALE, 0)
    return found


def test_every_edge_is_there_once_with_its_reverse():
    rng = np.random.default_rng(0)
    source, destination = data.undirected(300, 4000, rng)
    keys = source * 300 + destination
    assert keys.size == 4000 and (np.diff(keys) > 0).all() and (source != destination).all()
    assert np.array_equal(np.sort(destination * 300 + source), keys)
    degrees = np.bincount(source, minlength=300)
    assert degrees.max() > 4 * degrees.mean()
    with pytest.raises(ValueError, match="4000 distinct edges do not fit 50 nodes"):
        data.undirected(50, 4000, rng)


def test_files_are_written_once(files):
    before = [path.stat().st_mtime_ns for path in files]
    data.write(files, SCALE, 0)
    assert [path.stat().st_mtime_ns for path in files] == before
    edges, features, labels, trained = files.load()
    nodes, many = data.sizes(SCALE)
    assert edges.shape == (2, many) and features.shape == (nodes, data.FEATURES) and labels.shape == (nodes,)
    assert trained.unique().numel() == trained.numel() == nodes * data.TRAINED // data.NODES


@pytest.mark.parametrize("network", large.NETWORKS)
def test_losses_are_those_of_the_framework_alone(files, network):
    framework, _, kind = network.partition("-")
    pytest.importorskip({"pyg": "torch_geometric", "dgl": "dgl"}[framework], reason=f"{framework} is not installed")
    losses = []
    for backend in (False, True):
        found = epoch._train(files, epoch.Cell(framework, kind, backend, 1, 2, 0, 0))
        assert found["fits"] and len(found["epochs"]) == 2 and 0 < found["resident"] <= found["peak"]
        assert all(sum(each.values()) == took for each, took in zip(found["parts"], found["epochs"]))
        losses.append(found["losses"])
    np.testing.assert_allclose(*losses, rtol=2e-4)


def test_what_does_not_fit_says_so(tmp_path, monkeypatch, capsys):
    def in_child(function, *given):
        if function is epoch.train:
            raise memory.CannotMeasure("the process was killed")
        return function(*given)

    monkeypatch.setattr(memory, "in_child", in_child)
    monkeypatch.setattr(large.cli, "installed", lambda names, console: list(names))
    given = ["--scale", "1/10000", "--alone", "1/10000", "--models", "pyg-sage", "--limit", "1"]
    assert large.main([*given, "--data", str(tmp_path), "--out", str(tmp_path)]) == 0
    cells = json.loads((tmp_path / "large.json").read_text())["cells"]
    assert [(each["contender"], each["fits"]) for each in cells] == [("backend", False), ("alone", False)]
    assert "more than 1" in capsys.readouterr().out


def test_each_scale_has_its_epochs_and_is_told_against_the_smallest(tmp_path, monkeypatch, capsys):
    made = []

    def in_child(function, *given):
        if function is not epoch.train:
            return None
        made.append(given[1])
        seconds = 3.0 if given[1].epochs == 1 else 1.0
        parts = [{"forward": seconds / 3, "backward": seconds / 2, "step": seconds / 6}]
        return {"fits": True, "graph": 0.1, "epochs": [seconds], "parts": parts, "losses": [0.5], "peak": 1 << 30}

    monkeypatch.setattr(memory, "in_child", in_child)
    monkeypatch.setattr(large.cli, "installed", lambda names, console: list(names))
    scales = ["--scale", "1/10000", "1/5000", "--epochs", "2", "1", "--alone", "1/5000"]
    assert large.main([*scales, "--models", "pyg-gat", "--data", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert [(each.backend, each.epochs) for each in made] == [(True, 2), (True, 1), (False, 1)]
    cells = json.loads((tmp_path / "large.json").read_text())["cells"]
    ratio = large.time_of_edge(cells[1]) / large.time_of_edge(cells[0])
    assert ratio == pytest.approx(1.5, rel=0.01) and f"{ratio:.2f}" in capsys.readouterr().out


@pytest.mark.parametrize("scale", ["0", "2", "1/0", "half"])
def test_scales_are_shares(scale, capsys):
    with pytest.raises(SystemExit):
        large.arguments(["--scale", scale])
    assert "--scale" in capsys.readouterr().err


def test_reading_is_measured_in_each_way(tmp_path, capsys):
    given = ["--mib", "2", "--rows", "50", "--readers", "3", "--data", str(tmp_path), "--out", str(tmp_path)]
    assert reading.main(given) == 0
    seconds = json.loads((tmp_path / "reading.json").read_text())["seconds"]
    assert len(seconds) == 5 and all(each > 0 for each in seconds.values())
    assert "a batch: load_features" in capsys.readouterr().out
