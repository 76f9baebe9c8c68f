"""What ``gsb.explain`` says of a kernel map, against what runs; and ``gsb.precompile`` on one."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import stats
from gnn_sparse_backend.ops.convolution import executables_cpu
from gnn_sparse_backend.ops.convolution.executables import conv
from gnn_sparse_backend.ops.convolution.executables_cuda import spec_on_gpu
from gnn_sparse_backend.runtime import devices
from tests.ops.convolution.pairs import one_each, random_map


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("make, features", [(random_map, (12, 20)), (one_each, 16), (random_map, (4, 32))])
def test_the_dataflow_is_the_one_that_runs(make, features, backward, calls_to):
    kernel_map, kernels = make(), calls_to(executables_cpu, "conv_kernel")
    found = gsb.explain(kernel_map, "sparse_conv", features, backward=backward)
    c_in, c_out = (features, features) if isinstance(features, int) else features
    on, widths = (kernel_map.transpose(), (c_out, c_in)) if backward else (kernel_map, (c_in, c_out))
    conv(on, torch.ones(on.shape[1], widths[0]), torch.ones(on.num_offsets, 1, *widths))
    ran = [call.arguments[0] for call in kernels]
    assert [found.order] == (ran or ["rgms"]) and found.order == min(found.predicted, key=found.predicted.__getitem__)
    assert (found.in_features, found.out_features, found.rows) == (*widths, on.shape[0])
    text = str(found)
    assert f"* {found.order}" in text and f"{on.num_pairs:,} pairs of {on.num_offsets} offsets" in text
    assert ("the gradient to the features" in text) == backward
    assert all(f" {order} " in text for order in found.predicted)


def test_depthwise_empty_and_on_a_gpu(monkeypatch):
    found = gsb.explain(random_map(), features=(24, 24, 24))
    assert found.order == "depthwise" and not found.predicted and "24 groups" in str(found)
    none = gsb.KernelMap.from_pairs(*(torch.zeros(n, dtype=torch.long) for n in (0, 0, 4)), (2, 3))
    assert "no pairs" in str(gsb.explain(none, features=8))
    monkeypatch.setattr(devices, "arch_of", lambda device: "sm_90")
    kernel_map = random_map()
    found = gsb.explain(kernel_map, features=64, dtype="float16")
    spec = spec_on_gpu(kernel_map, 1, 64, 64, torch.float16, "sm_90")
    assert found.order == "tiles" and found.block == (spec.rows, spec.width) and "sm_90" in str(found)
    assert 0.3 < found.met < 1  # of rows that have a pair of four offsets in ten
    assert gsb.explain(kernel_map, features=64, dtype="float64").order == "rgms"


def test_what_is_no_question_is_refused():
    kernel_map = random_map()
    with pytest.raises(ValueError, match="sum runs on a graph, got a gsb.KernelMap: choose from sparse_conv, "):
        gsb.explain(kernel_map, "sum")
    for features in ((1, 2, 3, 4), 0, (4, -1), "64"):
        with pytest.raises(ValueError, match="features must be C, "):
            gsb.explain(kernel_map, features=features)
    with pytest.raises(ValueError, match="groups must divide 6 and 8 channels, got 4"):
        gsb.explain(kernel_map, features=(6, 8, 4))
    with pytest.raises(ValueError, match=r"runs on a gsb.KernelMap, which an object of type Tensor is not"):
        gsb.precompile(torch.zeros(2, 3, dtype=torch.long), {"sparse_conv": 8})


def test_calls_and_gradients_compile_nothing_after_precompile():
    kernel_map = random_map()
    asked = {"sparse_conv": [(12, 20), 8], "sparse_conv_groups": [(8, 8, 8), (8, 12, 2)]}
    report = gsb.precompile(kernel_map, asked, budget="60s", progress=False)
    assert report.complete and {row.state for row in report.rows} == {"compiled"} and len(report.rows) == 4
    before = stats()
    for c_in, c_out, groups in ((12, 20, 1), (8, 8, 1), (8, 8, 8), (8, 12, 2)):
        x = torch.ones(kernel_map.shape[1], c_in, requires_grad=True)
        w = torch.ones(kernel_map.num_offsets, c_in // groups, c_out, requires_grad=True)
        gsb.sparse_conv(x, w, kernel_map, groups=groups).sum().backward()
    after = stats()
    assert (after.compiles, after.disk_loads) == (before.compiles, before.disk_loads)
    assert gsb.precompile(kernel_map, 8, budget="60s", progress=False).rows[0].op == "sparse_conv and backward"
