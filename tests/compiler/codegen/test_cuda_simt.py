"""A few calls of several kinds of kernels for a GPU, by their CUDA source, thread by thread, in two orders of the
threads.

The whole of what the stand-in for a GPU is tested with runs so by ``python -m tests.simt tests/ops tests/integrations
tests/simt``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gnn_sparse_backend.compiler.codegen.cuda.nvidia import DRIVER, find_library
from tests.simt.source import missing

DEVICES = "tests/ops/core/test_devices.py::"
CALLS = {
    "sums": [f"{DEVICES}test_widths[1]"],
    "products": [
        f"{DEVICES}test_rows_in_buckets[parts]",
        "tests/ops/relational/test_rows_cuda.py::test_numbers_of_relations[1-300]",
        "tests/ops/message/test_blocks.py::test_edges_that_repeat",
    ],
}


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.skipif(
    find_library(DRIVER) is not None, reason="this machine has a driver, which the acted one would stand beside"
)
@pytest.mark.parametrize("kind", ["sums", "products"])
def test_kernels_of_several_kinds(kind, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"GSB_CACHE_DIR": str(tmp_path), "GSB_SIMT_ORDERS": "0,1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.simt", "-q", "-p", "no:cacheprovider", *CALLS[kind]],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
