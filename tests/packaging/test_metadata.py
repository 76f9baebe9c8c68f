"""What the package says of itself: one version, and ranges that hold what the project is tested with."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import gnn_sparse_backend

ROOT = Path(__file__).parents[2]


def test_the_version_is_read_without_pytorch():
    script = "import sys, gnn_sparse_backend as gsb; print(gsb.__version__, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == [gnn_sparse_backend.__version__, "False"]


def test_the_tested_versions_are_within_the_ranges():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 has it")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = {}
    for text in chain(project["dependencies"], *project["optional-dependencies"].values()):
        requirement = Requirement(text)
        ranges.setdefault(requirement.name, []).append(requirement.specifier)
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    for pin in pins:
        for exact in pin.specifier:
            if exact.operator == "==":
                assert all(allowed.contains(exact.version) for allowed in ranges.get(pin.name, [])), pin
    assert {"torch", "apache-tvm", "apache-tvm-ffi"} <= {pin.name for pin in pins if "==" in str(pin)}
