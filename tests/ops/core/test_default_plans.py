"""The calls that are checked by tools on a GPU reach every kind of kernel there is for one."""

from __future__ import annotations

import pytest
import torch

from gnn_sparse_backend.compiler.cache.kernel import Kernel
from gnn_sparse_backend.ops.core import cuda_build
from gnn_sparse_backend.ops.core import plans_cuda as cuda_plans
from gnn_sparse_backend.planner.cuda.gpu import Gpu
from gnn_sparse_backend.runtime import devices
from tests import default_plans

pytestmark = pytest.mark.moves_by_itself
# No GPU has it, so nothing that is planned here is met by another test.
ARCH = "sm_99999"


@pytest.fixture
def built(monkeypatch):
    """Programs and schedules of the kernels that would be built, of which none is."""
    found = []

    def build(program, schedule, arch):
        assert arch == ARCH
        found.append((program.name, schedule))
        return Kernel(lambda *arguments: None, program.name, "", "memory", 0.0, arch, None, {})

    monkeypatch.setattr(devices, "arch_of", lambda device: ARCH)
    monkeypatch.setattr(cuda_plans, "_gpu", lambda device, arch: Gpu("none", ARCH))
    monkeypatch.setattr(cuda_build, "build", build)
    # what no kernel writes may be read as positions
    monkeypatch.setattr(torch, "empty", torch.zeros)
    monkeypatch.setattr(torch, "empty_like", torch.zeros_like)
    monkeypatch.setattr(torch.Tensor, "new_empty", torch.Tensor.new_zeros)
    return found


@pytest.mark.slow
def test_every_kernel_is_reached(built):
    """Each program and each kind of schedule; of the widths and types on the graphs of a million edges a few."""
    every = default_plans.cases()
    large = [case for case in every if any(words in case.name for words in ("large", "dense", "shared columns"))]
    few = [
        case
        for case in large
        if case.name
        in {
            "weighted mean of 3 on a large skewed graph, float32",
            "sum of 64 on a large skewed graph, float32",
            "sum of 64 on dense blocks, float16",
            "sum of 64 on shared columns, float16",
        }
    ]
    assert len(few) == 4 and len({case.name for case in every}) == len(every)
    left_out = "bfloat16", "of 1 ", "of 602 "
    for case in [
        *(case for case in every if case not in large and not any(words in case.name for words in left_out)),
        *few,
    ]:
        case(torch.device("cpu"))
    assert {name for name, _ in built} == {
        "aggregate",
        "attention",
        "attention_gradient",
        "attention_parts",
        "bsr_tiles",
        "composed_sddmm",
        "composed_spmm",
        "edge_map",
        "edge_softmax",
        "edge_softmax_apply",
        "edge_softmax_gradient",
        "edge_softmax_gradient_apply",
        "edge_softmax_gradient_parts",
        "edge_softmax_parts",
        "grouped_product",
        "grouped_rows",
        "grouped_sum",
        "grouped_sum_tiles",
        "grouped_tiles",
        "rgms_row_dots",
        "rgms_rows",
        "rgms_sum_tiles",
        "rgms_tiles",
        "softmax_merge",
        "sr_bcrs_tiles",
        "sums",
    }
    assert {step.name for _, schedule in built for step in schedule} >= {
        "fold_across_lanes",
        "visit_side_by_side",
        "cache_row",
        "scan_segments",
        "in_shared_memory",
        "multiply_fragments",
        "fuse_grids",
    }
