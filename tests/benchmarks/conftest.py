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
def command(limits, tmp_path, monkeypatch):
    """Run a benchmark's ``main`` with the process's own threads and made-up limits, in a folder of its own."""
    from benchmarks.support import roofline

    threads = torch.get_num_threads()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"):
        monkeypatch.setenv(variable, str(threads))
    monkeypatch.setenv("COLUMNS", "220")
    monkeypatch.setattr(roofline, "measure", lambda threads: limits)

    def run(main, *arguments):
        return main([*map(str, arguments), "--threads", str(threads), "--out", str(tmp_path)])

    return run
