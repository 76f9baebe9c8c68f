"""The scripts as a user runs them, on a small graph: by their ``main``, and two of them in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from models import graphsage, rgcn

ROOT = Path(__file__).resolve().parents[2]
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
SMALL = ("--nodes", "600", "--edges", "5000", "--epochs", "5", "--hidden", "16", "--threads", "1")


def run(*command: str, cwd=ROOT) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def call(monkeypatch, set_threads, capsys):
    """Run a script's ``main`` here, which sets threads: (exit status, what it printed, its errors)."""
    set_threads(1)
    monkeypatch.setenv("COLUMNS", "120")
    for variable, value in (("OMP_NUM_THREADS", "1"), ("DGLBACKEND", "pytorch")):  # set by scripts, and put back here
        monkeypatch.setenv(variable, value)

    def run(main, *arguments: str):
        try:
            status = main(list(arguments))
        except SystemExit as end:
            status = end.code
        return (status, *capsys.readouterr())

    return run


@pytest.mark.parametrize("framework, module, label", [("dgl", "dgl", "DGL"), ("pyg", "torch_geometric", "PyG")])
@pytest.mark.slow
def test_graphsage_both(framework, module, label, call, tmp_path):
    pytest.importorskip(module)
    status, said, _ = call(graphsage.main, "--framework", framework, *SMALL, "--out", str(tmp_path))
    assert status == 0 and "600 nodes, 5,000 edges" in said and "with and without the backend agrees" in said
    assert said.count(label) >= 2 and "100%" in said

    record = json.loads((tmp_path / f"graphsage-{framework}.json").read_text())
    assert [each["backend"] for each in record["runs"]] == ["off", "on"] and record["disagreements"] == []
    assert all(len(each["losses"]) == len(each["seconds"]) == 5 for each in record["runs"])
    assert record["dataset"]["edges"] == 5_000 and record["config"]["hidden"] == 16
    assert (tmp_path / f"graphsage-{framework}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("framework, module", [("dgl", "dgl"), ("pyg", "torch_geometric")])
def test_rgcn_both(framework, module, call, tmp_path):
    pytest.importorskip(module)
    status, said, _ = call(
        rgcn.main, "--framework", framework, *SMALL, "--bases", "4", "--precompile", "20s", "--out", str(tmp_path)
    )
    # every edge has an inverse
    assert status == 0 and "600 nodes, 10,000 edges" in said and "with and without the backend agrees" in said
    record = json.loads((tmp_path / f"rgcn-{framework}.json").read_text())
    on = record["runs"][1]
    assert record["disagreements"] == [] and on["own_calls"] >= 2 * 6 and on["framework_calls"] == 0


@pytest.mark.parametrize(
    "dataset, message",
    [
        (
            "cora",
            "error: unknown data set 'cora': give 'generated', 'debian', 'wordnet', 'aifb', 'mutag', 'bgs', 'am', or "
            "the path of a .npz file",
        ),
        ("mine.npz", "error: mine.npz has no array 'etype'; needed are 'src', 'dst', 'etype' and 'label'"),
    ],
)
def test_rgcn_refuses(dataset, message, call, tmp_path, monkeypatch):
    pytest.importorskip("torch_geometric")
    np.savez(tmp_path / "mine.npz", src=[0], dst=[1], label=[0, 1])
    monkeypatch.chdir(tmp_path)
    status, _, errors = call(rgcn.main, "--framework", "pyg", "--dataset", dataset)
    assert status == 2 and message in errors


@pytest.mark.slow
def test_demo_prints_one_table(tmp_path):
    pytest.importorskip("torch_geometric")
    done = run("-m", "models.demo", "--quick", *SMALL, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "demo.json").read_text())
    frameworks = list(dict.fromkeys(each["framework"] for each in record["runs"]))
    assert len(record["runs"]) == 2 * len(frameworks) and "pyg" in frameworks
    assert done.stdout.count("ms per epoch") == 1
    assert (tmp_path / "demo.png").stat().st_size > 10_000


@pytest.mark.slow
def test_graphsage_runs_as_a_file_from_another_folder(tmp_path):
    pytest.importorskip("torch_geometric")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", src=rng.integers(0, 50, 300), dst=rng.integers(0, 50, 300))
    done = run(
        str(ROOT / "models" / "graphsage.py"),
        "--framework",
        "pyg",
        "--dataset",
        "mine.npz",
        "--backend",
        "off",
        "--epochs",
        "2",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generated: features and labels" in done.stdout
    assert (tmp_path / "out" / "graphsage-pyg.json").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        (("--dataset", "absent.npz"), "error: absent.npz is not a file"),
        (("--dataset", "reddit"), "error: unknown data set 'reddit'"),
        (("--epochs", "0"), "error: epochs must be at least 1, got 0"),
        (("--threads", "0"), "error: --threads must be at least 1, got 0"),
        (("--backend", "maybe"), "invalid choice: 'maybe'"),
        pytest.param(
            ("--device", "cuda"), "error: --device cuda: PyTorch finds no GPU here; `gsb doctor`", marks=no_gpu
        ),
    ],
)
def test_bad_input_is_refused_in_words(options, message, call, tmp_path):
    pytest.importorskip("torch_geometric")
    status, _, errors = call(graphsage.main, "--framework", "pyg", *options, "--out", str(tmp_path / "out"))
    assert status == 2 and message in errors
    assert not (tmp_path / "out").exists()
