"""A few calls of every kind of kernel for a GPU, by their CUDA source, thread by thread, in two orders of the threads.

The whole of what the stand-in for a GPU is tested with runs so by ``python -m tests.simt tests/ops tests/integrations tests/simt``.
"""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gnn_sparse_backend.compiler.target.nvidia import DRIVER, find_library
from tests.simt.source import missing

DEVICES = "tests/ops/test_ops_devices.py::"
CALLS = [
    f"{DEVICES}test_widths[1]", f"{DEVICES}test_widths[200]", f"{DEVICES}test_rows_of_few_features_are_summed_across_lanes",
    f"{DEVICES}test_edges_of_long_rows_are_loaded_in_stretches[weighted mean-12]", f"{DEVICES}test_rows_in_buckets[parts]",
    f"{DEVICES}test_every_operator_and_its_gradients[attention]", f"{DEVICES}test_every_operator_and_its_gradients[edge_softmax]",
    f"{DEVICES}test_products_in_fragments[bfloat16]",
    "tests/ops/test_ops_cuda_rgms_rows.py::test_both_directions[float16-widths0-1-mean-False]",
    "tests/ops/test_ops_cuda_rgms_rows.py::test_both_directions_in_full_precision[widths1-2-sum-True]",
    "tests/ops/test_ops_cuda_rgms_dots.py::test_a_hub_is_cut_into_parts",
    "tests/ops/test_ops_cuda_any_widths.py::test_rgms_of_any_widths_in_fragments[float16-widths0-1-sum]",
    "tests/ops/test_ops_bsr.py::test_numbers_of_heads", "tests/ops/test_ops_outer_sums.py::test_blocks_on_the_diagonal_are_apart",
    "tests/ops/test_ops_cuda_full_precision.py::test_operands_of_any_layout",
    "tests/ops/test_ops_cuda_segments.py::test_sums_over_chunks[odd-mul(x0, x1)-mean-4-dtype1]",
]


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.skipif(find_library(DRIVER) is not None, reason="this machine has a driver, which the acted one would stand beside")
def test_kernels_of_every_kind(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"GSB_CACHE_DIR": str(tmp_path), "GSB_SIMT_ORDERS": "0,1"}
    done = subprocess.run([sys.executable, "-m", "tests.simt", "-q", "-p", "no:cacheprovider", *CALLS], capture_output=True, text=True,
                          env=environment, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
