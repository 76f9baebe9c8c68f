"""Kernels whose lanes walk along the edges of a row: what they exchange, and machine code without spills."""

from __future__ import annotations

import functools
import re

import pytest

from gnn_sparse_backend.ops.attention import schedules_cuda as attention
from gnn_sparse_backend.ops.attention.programs.edge_softmax import EdgeSoftmaxSpec
from gnn_sparse_backend.ops.attention.programs.softmax_merge import MergeSpec
from gnn_sparse_backend.ops.message import schedules_cuda as cuda_kernels
from gnn_sparse_backend.ops.message.executables import final_plan
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from gnn_sparse_backend.planner.cuda.plan import WARP
from gnn_sparse_backend.planner.cuda.rows import FEW, LANES_PAY, PART, LanePlan, TeamPartPlan, TeamPlan
from gnn_sparse_backend.planner.cuda.strategies import plan_softmax, rule_plan
from gnn_sparse_backend.planner.problem import CudaProblem
from tests.compiler.cuda_code import ARCHITECTURES, check_machine_code, needs_nvcc, source


def _extreme(width: int, dtype: str, **more):
    operands = (Operand("column", (width,), dtype), Operand("edge", (1,), dtype))
    return AggregateSpec(parse("mul(x1, x0)"), operands, (width,), dtype, reduce="max", **more)


def _in_lanes(spec, lanes):
    return lambda arch: cuda_kernels.aggregate_kernel(spec, final_plan(LanePlan(arch, lanes), spec))


def _softmax(width, lanes, gradient=False, dtype="float32", **more):
    return lambda arch: attention.edge_softmax_kernel(
        EdgeSoftmaxSpec(width, dtype, numbered=True, **more), gradient, arch, lanes
    )


# name: (kernel, results that are folded across lanes, lanes, loops over the edges of a row)
KERNELS = {
    "softmax_of_one_head": (_softmax(1, 32), 2, 32, 3),
    "softmax_of_eight_heads": (_softmax(8, 32, dtype="bfloat16"), 16, 32, 3),
    "softmax_of_parts": (_softmax(4, 8, stage="parts"), 8, 8, 2),
    "softmax_from_parts": (_softmax(1, 32, stage="apply"), 0, 32, 1),
    "softmax_gradient": (_softmax(4, 8, True, "float16"), 4, 8, 2),
    "softmax_gradient_from_parts": (_softmax(4, 32, True, stage="apply"), 0, 32, 1),
    "max_1_with_its_column": (_in_lanes(_extreme(1, "float32", keep=("unique",), propagate=True), 32), 2, 32, 1),
    "max_4_bfloat16": (_in_lanes(_extreme(4, "bfloat16", propagate=True), 8), 4, 8, 1),
}
MERGES = {"merge_of_one_head": MergeSpec((), (1,)), "merge_of_values": MergeSpec((4, 32), (4, 1), "bfloat16")}
source_of = functools.lru_cache(maxsize=None)(lambda name, arch: source(KERNELS[name][0], arch))


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_lanes_fold_by_shuffles_of_their_team(name):
    """In halves, and what the first has goes to all; lanes store edges of their own, and nothing waits for a block."""
    _, results, lanes, loops = KERNELS[name]
    kernel = source_of(name, "sm_80").split('extern "C"')[-1]
    assert kernel.count("__shfl_down_sync(") == results * (lanes.bit_length() - 1)
    assert kernel.count("__shfl_sync(") == results
    widths = re.findall(r"__shfl\w*_sync\(.*, (\d+)\);", kernel)
    assert set(widths) <= {str(lanes)} and len(widths) == results * lanes.bit_length()
    for word in ("__shared__", "__syncthreads", "atomicAdd(", "__activemask"):
        assert word not in kernel
    turns = [line for line in kernel.splitlines() if " turn" in line and "for (" in line]
    assert len(turns) == loops and all(f"/ (int64_t){lanes}" in line or ">> " in line for line in turns), turns


@pytest.mark.short(1)
@needs_nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", ["max_4_bfloat16", "softmax_gradient", "softmax_of_eight_heads", "softmax_of_parts"])
def test_machine_code_without_spills(name, arch):
    check_machine_code(source_of(name, arch), arch)


@needs_nvcc
@pytest.mark.parametrize("name", sorted(MERGES))
def test_merges_without_spills(name):
    check_machine_code(source(lambda arch: attention.softmax_merge_kernel(MERGES[name], arch), "sm_90"), "sm_90")


def test_rules():
    def maximum(rows, nnz, features, longest=0):
        return CudaProblem("max:edge", rows, rows, nnz, features, "float32", 1, longest=longest, arch="sm_90")

    team, warp = TeamPlan("sm_90"), LanePlan("sm_90", WARP)
    assert rule_plan(maximum(100, 100 * WARP, 4)) == warp
    assert rule_plan(maximum(100, 100 * LANES_PAY, 1)) == LanePlan("sm_90", LANES_PAY)
    assert rule_plan(maximum(100, 100 * WARP, 5)) == TeamPlan("sm_90", cached=True)
    assert rule_plan(maximum(100, 700, 1)) == team
    assert rule_plan(maximum(10, 3000, 4, 2100)) == TeamPartPlan(warp, PART)
    assert plan_softmax(maximum(100, 400 * WARP, FEW)) == warp != plan_softmax(maximum(100, 399 * WARP, 5))
    assert final_plan(warp, _extreme(2, "float32")) == warp
    in_parts, last = TeamPartPlan(warp, PART), {"keep": ("number",), "numbered": True}  # which came last is not known
    assert (
        final_plan(warp, _extreme(2, "float32", **last)) == final_plan(in_parts, _extreme(2, "float32", **last)) == team
    )
