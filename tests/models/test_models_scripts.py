"""The scripts as a user runs them: in a process of their own, on a small graph."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
SMALL = ("--nodes", "600", "--edges", "5000", "--epochs", "5", "--hidden", "16", "--threads", "1")


def run(*command: str, cwd=ROOT) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=300,
                          env=os.environ | {"COLUMNS": "120"}, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("framework, module, label", [("dgl", "dgl", "DGL"), ("pyg", "torch_geometric", "PyG")])
def test_graphsage_both(framework, module, label, tmp_path):
    pytest.importorskip(module)
    done = run("-m", "models.graphsage", "--framework", framework, *SMALL, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "600 nodes, 5,000 edges" in done.stdout and "with and without the backend agrees" in done.stdout
    assert done.stdout.count(label) >= 2 and "100%" in done.stdout

    record = json.loads((tmp_path / f"graphsage-{framework}.json").read_text())
    assert [each["backend"] for each in record["runs"]] == ["off", "on"] and record["disagreements"] == []
    assert all(len(each["losses"]) == len(each["seconds"]) == 5 for each in record["runs"])
    assert record["dataset"]["edges"] == 5_000 and record["config"]["hidden"] == 16
    assert (tmp_path / f"graphsage-{framework}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("framework, module", [("dgl", "dgl"), ("pyg", "torch_geometric")])
def test_rgcn_both(framework, module, tmp_path):
    pytest.importorskip(module)
    done = run("-m", "models.rgcn", "--framework", framework, *SMALL, "--bases", "4", "--precompile", "20s", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    # every edge has an inverse
    assert "600 nodes, 10,000 edges" in done.stdout and "with and without the backend agrees" in done.stdout
    record = json.loads((tmp_path / f"rgcn-{framework}.json").read_text())
    on = record["runs"][1]
    assert record["disagreements"] == [] and on["own_calls"] >= 2 * 6 and on["framework_calls"] == 0


@pytest.mark.parametrize("dataset, message", [
    ("cora", "error: unknown data set 'cora': give 'generated', 'debian', 'wordnet', 'aifb', 'mutag', 'bgs', 'am', or the path of a .npz file"),
    ("mine.npz", "error: mine.npz has no array 'etype'; needed are 'src', 'dst', 'etype' and 'label'")])
def test_rgcn_refuses(dataset, message, tmp_path):
    pytest.importorskip("torch_geometric")
    np.savez(tmp_path / "mine.npz", src=[0], dst=[1], label=[0, 1])
    done = run(str(ROOT / "models" / "rgcn.py"), "--framework", "pyg", "--dataset", dataset, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr


def test_demo_prints_one_table(tmp_path):
    pytest.importorskip("torch_geometric")
    done = run("-m", "models.demo", "--quick", *SMALL, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "demo.json").read_text())
    frameworks = list(dict.fromkeys(each["framework"] for each in record["runs"]))
    assert len(record["runs"]) == 2 * len(frameworks) and "pyg" in frameworks
    assert done.stdout.count("ms per epoch") == 1
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_graphsage_runs_as_a_file_from_another_folder(tmp_path):
    pytest.importorskip("torch_geometric")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", src=rng.integers(0, 50, 300), dst=rng.integers(0, 50, 300))
    done = run(str(ROOT / "models" / "graphsage.py"), "--framework", "pyg", "--dataset", "mine.npz", "--backend", "off",
               "--epochs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generated: features and labels" in done.stdout
    assert (tmp_path / "out" / "graphsage-pyg.json").exists()


@pytest.mark.parametrize("options, message", [
    (("--dataset", "absent.npz"), "error: absent.npz is not a file"),
    (("--dataset", "reddit"), "error: unknown data set 'reddit'"),
    (("--epochs", "0"), "error: epochs must be at least 1, got 0"),
    (("--threads", "0"), "error: --threads must be at least 1, got 0"),
    (("--backend", "maybe"), "invalid choice: 'maybe'"),
    pytest.param(("--device", "cuda"), "error: --device cuda: PyTorch finds no GPU here; `gsb doctor`", marks=no_gpu),
])
def test_bad_input_is_refused_in_words(options, message, tmp_path):
    pytest.importorskip("torch_geometric")
    done = run("-m", "models.graphsage", "--framework", "pyg", *options, "--out", str(tmp_path / "out"))
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
