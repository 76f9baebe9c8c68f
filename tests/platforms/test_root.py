"""The package on Arm's Python and PyTorch, where ``make test-aarch64`` has set them up: a call and its gradients."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.platforms.emulated import ROOT

REPOSITORY = Path(__file__).parents[2]
PYTHON = (REPOSITORY / ROOT / "python").absolute()


@pytest.mark.skipif(not PYTHON.exists(), reason="make test-aarch64 sets up the Debian for Arm that this runs in")
def test_a_product_and_its_gradients():
    """PyTorch takes half a minute to import there: what needs more of it is run by ``make test-aarch64``."""
    script = "tests/packaging/spmm_gradient.py"
    done = subprocess.run([PYTHON, script], cwd=REPOSITORY, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
