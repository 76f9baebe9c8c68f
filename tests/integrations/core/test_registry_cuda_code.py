"""The code of every kernel that layers of DGL and PyG launch on a GPU: it is generated, and nvcc takes it, without a
GPU.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.integrations.small_layers import LAYERS, features, step
from tests.ops.recorded_code import Kernels

INSTALLED = [name for name, module in (("pyg", "torch_geometric"), ("dgl", "dgl")) if importlib.util.find_spec(module)]


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason="neither DGL nor PyG is installed")
def test_every_kernel_of_the_layers(recorded_gpu, tmp_path):
    """Forward and backward, in the type that layers have by default. Most ask for the same few."""
    found = Kernels()
    for name, (framework, make) in LAYERS.items():
        if framework not in INSTALLED:
            continue
        parameters, call = make(torch.float32)
        recorded_gpu.clear()
        with gsb.enabled(framework):
            step(parameters, call, features(dtype=torch.float32), None)
        found.add(name, recorded_gpu)
    assert {
        "aggregate",
        "attention",
        "attention_gradient",
        "sums",
        "grouped_product",
        "grouped_sum",
    } <= found.programs()
    found.check("float32", "sm_80", tmp_path)
