"""The scripts in examples/, run from beginning to end, each in a folder of its own.

They share this process, since importing the frameworks takes longer than most of them; one runs as a user starts it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.planner.cost import DEFAULT_UNITS
from gnn_sparse_backend.planner.database import PlanDatabase, database

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

# By script: the module that it needs, and what it has to print, as regular expressions.
SAID = {
    "dgl_model": ("dgl", [r"enabled: dgl", r"dgl +gspmm_mean +20 +0", r"loss after 10 epochs: \d\.\d+ on our kernels"]),
    "pyg_model": ("torch_geometric", [r"pyg +mul\.sum +20 +0", r"loss after 10 epochs: \d\.\d+ on our kernels"]),
    "spconv_model": ("spconv", [r"spconv +SparseInverseConv +31 +0", r"loss after 30 steps: 0\.\d+"]),
    "precompile_dataset": (
        "torch_geometric",
        [
            r"mean +│ +64 │ float32 │.*measured",
            r"mean backward │ +32 │ float32 │.*measured",
            r"the first training step compiled 0 kernels",
        ],
    ),
    "mini_batches": ("dgl", [r"epoch 2: mean loss \d\.\d+, kernels made or loaded so far: \d", r"gspmm_mean +30 +0"]),
    "rgcn_heterogeneous": ("torch_geometric", [r"58000 edges, 5 relations", r"pyg +rgms +1 +0"]),
    "distributed_sage": (
        None,
        [r"range: \d+\.\d% of the edges cut", r"part 1: loss after 5 epochs: \d\.\d+, sent \d+ bytes"],
    ),
    "sampled_ddp": (None, [r"process 1: 20 batches an epoch, loss \d\.\d+ and then \d\.\d+"]),
    "own_message": (None, [r"the sum and 3 gradients agree", r"first and second gradients agree"]),
    "attention_by_hand": (None, [r"three_steps: results and 3 gradients", r"attention: results and 3 gradients"]),
    "torch_compile": (None, [r"compiled by inductor: results and 4 gradients as without"]),
    "segment_points": (None, [r"loss after 40 clouds: \d\.\d+", r"rod: \d+% of 1800 points are found"]),
    "torchsparse_points": (None, [r"loss after 1 and 6 epochs: \d\.\d+ and 0\.\d+", r"Conv3d transposed +\d+ +0"]),
    "minkowski_engine": (
        None,
        [r"loss after 30 batches: \d\.\d+", r"\d+ of 30 clouds", r"MinkowskiEngine +MinkowskiConvolution +62 +0"],
    ),
    "explain_plan": ("matplotlib", [r"mean of 16 features", r"candidates", r"written: out/plan\.png"]),
    "cp_als": (None, [r"Array\(csf, .*nnz=\d+", r"error after 1 step 0\.\d+, after 20", r"Sum__0\[r\] \+ T\["]),
    "own_kernel": (
        None,
        [
            r"(?s)# Stage I,.*iterate\('rows'.*# Stage II,.*T\.sblock.*# Stage III,.*T\.parallel.*# Assembly",
            r"\.globl\s+\S*spmm_bias_relu",
            r"Kernel\('spmm_bias_relu'",
        ],
    ),
}
# The others are run by make test-all.
SHORT = {"cp_als", "pyg_model", "own_message", "own_kernel", "explain_plan"}


@pytest.fixture
def as_by_itself(tmp_path, monkeypatch):
    """No framework is enabled, nothing was counted or measured before; the current folder is empty."""
    plans = PlanDatabase(tmp_path / "plans.json")
    plans.set_units(DEFAULT_UNITS)
    monkeypatch.setattr(database, "_database", plans)
    monkeypatch.chdir(tmp_path)
    gsb.disable()
    reset_status()
    yield
    gsb.disable()
    reset_status()


@pytest.mark.cpu_only("the scripts name no device")
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in SAID])
def test_example(name, as_by_itself, monkeypatch, capsys):
    needs, said = SAID[name]
    if needs:
        pytest.importorskip(needs)
    if name == "torch_compile" and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("inductor needs a C++ compiler")
    path = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    out = capsys.readouterr().out
    for each in said:
        assert re.search(each, out), f"{each} is not in\n{out}"
    if name == "explain_plan":
        assert Path("out/plan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.cpu_only("the scripts name no device")
def test_a_script_runs_as_a_user_starts_it(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "own_kernel.py")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert "Kernel('spmm_bias_relu'" in done.stdout


def test_every_script_is_run_and_listed():
    scripts = {path.stem: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert set(scripts) == set(SAID) and len(SAID) >= 8
    listed = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(scripts)
    for name, text in scripts.items():
        assert len(text.splitlines()) < 80, name
        assert f"python examples/{name}.py" in text.split('"""')[1], "its docstring says what to run"


def test_a_script_fails_where_the_backend_never_runs(as_by_itself, monkeypatch):
    pytest.importorskip("torch_geometric")
    spec = importlib.util.spec_from_file_location("pyg_model", EXAMPLES / "pyg_model.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(gsb, "enabled", lambda framework: contextlib.nullcontext())
    with pytest.raises(AssertionError, match="the backend never ran"):
        script.main()
