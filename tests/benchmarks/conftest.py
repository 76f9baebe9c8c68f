"""The repository root, where the ``benchmarks`` package lies, on the path; what the tests of whole benchmarks share."""

import sys
from pathlib import Path

import pytest
import torch

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)


@pytest.fixture
def limits():
    """Made-up limits of a machine."""
    from benchmarks.support.roofline import Roofline

    return Roofline(2, ((1 << 20, 4e10), (1 << 30, 2e10)), 1e10, 1e11)


@pytest.fixture
def small_pubmed(monkeypatch):
    """A graph of sixty nodes in the place of a data set."""
    from benchmarks.support import graphs
    from benchmarks.support.generators import power_law

    recipe = graphs.Recipe("generated", lambda seed: power_law(60, 400, 2.0, 30, seed), 400)
    monkeypatch.setitem(graphs.RECIPES, "pubmed", recipe)


@pytest.fixture
def made_up_times(monkeypatch) -> dict[str, float]:
    """What every call takes on a GPU, with none at hand."""
    from benchmarks.layers import gpu_steps

    taken = {"warm": 1.0, "flushed": 2.0, "host": 0.5, "peak": 1 << 20}
    monkeypatch.setattr(gpu_steps, "times", lambda call, device: dict(taken))
    return taken


@pytest.fixture
def named_gpu(monkeypatch):
    """The CPU in the place of a GPU, with limits that are made up."""
    from benchmarks.planner import gpu_ratings
    from benchmarks.support.gpu import timing
    from benchmarks.support.roofline import Roofline

    monkeypatch.setattr(timing, "device_and_name", lambda: (torch.device("cpu"), "a stand-in"))
    monkeypatch.setattr(gpu_ratings, "limits", lambda device, dtype: Roofline(0, ((1, 1e12),), 1e12, 1e12))


@pytest.fixture
def command(limits, tmp_path, wide_terminal, monkeypatch):
    """Run a benchmark's ``main`` with the process's own threads and made-up limits, in a folder of its own."""
    from benchmarks.support import roofline

    threads = torch.get_num_threads()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"):
        monkeypatch.setenv(variable, str(threads))
    monkeypatch.setattr(roofline, "measure", lambda threads: limits)

    def run(main, *arguments):
        return main([*map(str, arguments), "--threads", str(threads), "--out", str(tmp_path)])

    return run
