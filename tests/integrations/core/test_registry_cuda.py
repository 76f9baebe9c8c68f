"""DGL and PyG on a GPU, without one: their layers take the way to CUDA, whose kernels run serially
(`tests/ops/serial_gpu.py`).

DGL's wheel is for the CPU, and PyTorch here may be. So tensors are the CPU's, and what differs is what differs in the
dispatch: which kernels are planned and launched, how PyG's graphs are found again, and what may not be read back.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen import BuildError
from gnn_sparse_backend.compiler.codegen.cuda import runtime as cuda_runtime
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.runtime import devices
from tests.integrations.small_layers import LAYERS, NODES, edge_index, features, step
from tests.ops.waits import without_waiting


def fallbacks(framework: str) -> dict:
    found = {name: row["fallbacks"] for name, row in gsb.status().to_dict()["calls"].get(framework, {}).items()}
    # what gcn_norm does at the first call: the degrees
    return {name: reasons for name, reasons in found.items() if reasons and not name.startswith("scatter.")}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_runs_on_kernels_for_cuda_and_reads_nothing_back(name, request, monkeypatch):
    framework, make = LAYERS[name]
    if importlib.util.find_spec({"pyg": "torch_geometric"}.get(framework, framework)) is None:
        pytest.skip(f"{framework} is not installed")
    x, (parameters, call) = features(), make()
    expected, cotangent = step(parameters, call, x, None)
    launched = request.getfixturevalue("serial_gpu")
    with gsb.enabled(framework):
        reset_status()
        first, _ = step(parameters, call, x, cotangent)
        assert launched and not fallbacks(framework), gsb.status()
        again = without_waiting(lambda: step(parameters, call, x, cotangent)[0], monkeypatch)
    for found in (first, again):
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours is None) is (theirs is None)
            if theirs is not None:
                torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.fixture
def store():
    pytest.importorskip("torch_geometric")
    from gnn_sparse_backend.integrations.core.graphs import GraphStore

    return GraphStore(10**7)


def find(store, index: Tensor) -> gsb.Graph:
    return store.find("coo", index[1], index[0], (NODES, NODES))


def test_pygs_graphs_are_known_by_their_tensors(store, serial_gpu):
    """Content is not looked at: a copy is another graph, and what was written to is noticed."""
    index = edge_index()
    graph = find(store, index)
    assert find(store, index) is graph and find(store, index.clone()) is not graph
    index[0, 3] = (index[0, 3] + 1) % NODES
    changed = find(store, index)
    assert changed is not graph and changed.same_structure(gsb.Graph.from_edge_index(index, (NODES, NODES)))


def test_pygs_graphs_go_with_their_tensors(store, serial_gpu):
    def used_and_forgotten():
        index = edge_index()
        (kept,) = store.derived(index, ("loops",), lambda: (torch.cat([index, index.flip(0)], 1),))
        assert store.derived(index, ("loops",), lambda: None)[0] is kept
        assert find(store, kept) is find(store, kept)
        store.derived(index, ("a view",), lambda: (index[:, 1:],))  # would keep the tensor alive
        find(store, index)
        assert len(store) == 2 and store.nbytes == 0

    used_and_forgotten()
    assert len(store) == 0 and not store._indices


def test_a_tensor_whose_changes_nobody_sees_is_not_kept(store, serial_gpu):
    with torch.inference_mode():
        index = edge_index()
        graph = find(store, index)
        index[0, 3] = (index[0, 3] + 1) % NODES
        assert not find(store, index).same_structure(graph) and len(store) == 0


def test_devices_without_kernels_are_left_to_the_framework(monkeypatch):
    def lacking(framework):
        raise BuildError("CUDA", "libcuda.so.1 is not on this machine")

    monkeypatch.setattr(cuda_runtime, "require_cuda", lacking)
    devices._why_not.cache_clear()
    devices._cuda_arch.cache_clear()
    try:
        assert devices.why_not(torch.device("cpu")) is None
        assert devices.why_not(torch.device("xpu:0")) == "device xpu"
        assert devices.why_not(torch.device("cuda:0")) == "CUDA kernels lack something here, see gsb doctor"
        monkeypatch.setattr(devices, "_cuda_arch", lambda device: "sm_90")
        devices._why_not.cache_clear()
        assert devices.why_not(torch.device("cuda:0")) is None
    finally:
        devices._why_not.cache_clear()
