"""What is left to a framework while kernels are compiled in the background, and what is ours from then on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from gnn_sparse_backend.compiler.cache.background import BACKGROUND, PendingKernel
from gnn_sparse_backend.compiler.codegen import BuildError
from gnn_sparse_backend.integrations.core import waiting
from gnn_sparse_backend.integrations.core.waiting import UncompiledKernelWarning, attempted, leaving

COMPILING = "its kernel is being compiled"


@pytest.mark.parametrize("framework, size", [("pyg", "small"), ("pyg", "large"), ("dgl", "large")])
def test_a_cold_cache_delays_no_step(framework, size, tmp_path):
    """The first step is the framework's, to the bit, and compiles nothing in its process; the next one is ours."""
    environment = os.environ | {"GSB_CACHE_DIR": str(tmp_path / "kernels"), "GSB_COMPILE": "background"}
    command = [sys.executable, "-m", "tests.integrations.core.background_program", framework, size]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, *others, last = json.loads(done.stdout.splitlines()[-1])
    assert first["distance"] == 0 and first["imported"] == []
    assert first["counts"]["ours"] == 0 and first["counts"][COMPILING] > 0
    assert all(each["distance"] < 1e-4 for each in (*others, last))
    assert last["counts"].keys() == {"ours"} and last["counts"]["ours"] > 0 and last["compiled here"] == 0
    assert others[0]["counts"]["ours"] > 0, "behind wait_for_kernels the next step is ours"


@pytest.fixture
def attempt(monkeypatch):
    monkeypatch.setattr(waiting, "in_background", lambda: True)
    return lambda run: attempted(run, "pending", "failed")


def raising(error):
    def run():
        torch.rand(3)
        raise error

    return run


def test_what_is_not_there_is_started_and_draws_nothing(attempt, monkeypatch):
    started = []
    monkeypatch.setattr(BACKGROUND, "start", lambda *job: started.append(job))
    state = torch.get_rng_state()
    assert attempt(raising(PendingKernel("key", print)))() == "pending"
    assert attempt(raising(PendingKernel()))() == "pending"
    assert started == [("key", print)] and torch.equal(torch.get_rng_state(), state)
    assert attempt(lambda x: x + 1)(1) == 2
    with pytest.raises(ValueError, match="theirs"):
        attempt(raising(ValueError("theirs")))()


def test_what_a_framework_computes_is_its_own_throughout(attempt):
    asked = attempt(lambda: "ours")
    with leaving("left"):
        assert asked() == "left"
        with leaving("within"):
            assert asked() == "within"
        assert asked() == "left"
    assert asked() == "ours"


def test_a_kernel_that_does_not_compile_is_told(attempt):
    run = attempt(raising(PendingKernel(error=BuildError("main", "no such instruction", "the text"))))
    with pytest.warns(UncompiledKernelWarning, match=r"in its place: kernel 'main': no such instruction$"):
        assert run() == "failed"
