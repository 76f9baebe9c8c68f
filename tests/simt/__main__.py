"""``python -m tests.simt tests/ops/relational/test_rows_cuda.py ...``: pytest, where the stand-in for a GPU runs CUDA
source thread by thread.

GSB_SIMT_ORDERS=0,1,2 has every launch run in several orders of its threads, whose results have to be the same, bit by
bit. With GSB_SERIAL_GPU=1 the CPU's own tests take the way to a GPU as well.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.compiler import fake_cuda
from tests.simt import driver
from tests.simt.source import HEADER, missing

if missing():
    sys.exit(f"tests.simt: {missing()}")
with tempfile.TemporaryDirectory(prefix="gsb-simt-") as scratch:
    try:
        folder = fake_cuda.make(Path(scratch, "driver"), gpus=1, more=driver.LOADING)
    except pytest.skip.Exception as reason:
        sys.exit(f"tests.simt: {reason}")
    kept = os.environ.get("GSB_CACHE_DIR", scratch)
    # kernels that are kept name libraries made by this header
    version = hashlib.sha256(HEADER.read_bytes()).hexdigest()[:16]
    environment = fake_cuda.environment(folder) | {"GSB_CACHE_DIR": str(Path(kept, f"simt-{version}")), "GSB_SIMT": "1"}
    sys.exit(
        os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-m", "pytest", "-m", "", *sys.argv[1:]], environment)
    )
