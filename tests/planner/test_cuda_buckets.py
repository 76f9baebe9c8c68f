"""hyb(c, k) on a GPU: how wide buckets are, how many rows of each a block takes, and when columns are cut into
partitions.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core import plans_cuda as cuda_plans
from gnn_sparse_backend.ops.core.plans import plan_of, planned
from gnn_sparse_backend.ops.message import schedules_cuda as cuda_kernels
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from gnn_sparse_backend.planner.candidates import reasons
from gnn_sparse_backend.planner.cuda import buckets, rows
from gnn_sparse_backend.planner.cuda import plan as cuda_plan
from gnn_sparse_backend.planner.cuda.blocks import BlockPlan
from gnn_sparse_backend.planner.cuda.buckets import BucketPlan, column_partitions, widest_bucket
from gnn_sparse_backend.planner.cuda.plan import BUCKETS_PAY, WARP
from gnn_sparse_backend.planner.cuda.strategies import candidates, rule_plan
from gnn_sparse_backend.planner.problem import CudaProblem
from tests.compiler.cuda_code import source
from tests.ops.serial_gpu import ARCH, GPU

REDDIT = CudaProblem(
    "sum:column", 232_965, 232_965, 114_615_892, 128, "float32", 1, longest=21_657, arch="sm_90", cache=50 << 20
)


@pytest.mark.parametrize("widest, lanes", [(64, 4)])
def test_blocks_have_equally_many_slots(widest, lanes):
    """In the kernel's source: a team goes through 2**(k - i) rows of the bucket of 2**i slots."""
    operands = (Operand("column", (4 * lanes,), "float32"), Operand("edge", (1,), "float32"))
    spec = AggregateSpec(parse("mul(x1, x0)"), operands, (4 * lanes,), numbered=True)
    text = source(lambda arch: cuda_kernels.bucket_kernel(spec, BucketPlan(arch, widest)), "sm_80")
    loops = re.findall(r"for \(\w+ i_w(\d+)_turn = [^;]+; \w+ < (?:\(int64_t\))?(\d+);", text)
    assert {int(width): int(width) * int(rows) for width, rows in loops} == {
        1 << i: widest for i in range(widest.bit_length() - 1)
    }


@pytest.mark.parametrize("partitions", [1, 2])
def test_rows_of_all_blocks_and_turns(partitions, serial_gpu):
    """So many short rows that they take many blocks, whose last turns are not full, against sums in float64."""
    lengths = torch.cat(
        [torch.ones(1000), torch.full((301,), 2), torch.full((75,), 4), torch.full((3,), 9), torch.zeros(5)]
    ).long()
    order = torch.randperm(int(lengths.sum()), generator=torch.Generator().manual_seed(0))
    row, col = (
        torch.repeat_interleave(torch.arange(len(lengths)), lengths)[order],
        (torch.arange(len(order)) * 7 % 101)[order],
    )
    graph = gsb.Graph.from_coo(row, col, (len(lengths), 101))
    x, w = torch.randn(101, 24, dtype=torch.float64), torch.randn(len(order), dtype=torch.float64)
    plan = BucketPlan(ARCH, 4, partitions)
    with planned(graph, "sum:column,edge", 24, x.dtype, plan):
        found = gsb.spmm(graph, x, w)
    expected = torch.zeros(len(lengths), 24, dtype=torch.float64).index_add(0, row, x[col] * w[:, None])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert serial_gpu == ["aggregate"] * 2


def test_buckets_are_as_wide_as_keeps_a_gpu_busy():
    assert widest_bucket(1 << 20, 128) == 512 == widest_bucket(1 << 40, 8)
    assert widest_bucket(1 << 20, 32) == 128 and widest_bucket(1 << 20, 8) == WARP == widest_bucket(1, 128)
    for nnz, features in ((1_500_000, 64), (3_000_000, 13)):
        width = widest_bucket(nnz, features)
        assert width & (width - 1) == 0
        assert nnz // width * cuda_plan.shares(features, 4).lanes >= buckets.BUSY


def test_columns_are_cut_where_that_saves_bytes():
    """Of Reddit's size: 119 MB of rows, of which a cache of 50 MiB holds 26."""
    plan = rule_plan(REDDIT)
    assert plan == BlockPlan(BucketPlan("sm_90", 512, 8))
    assert rule_plan(replace(REDDIT, longest=600)).partitions == 8  # no hubs are needed for it
    said = " ".join(reasons(REDDIT, plan))
    assert (
        "The dense operand has 113 MiB, and rows of it can count on 50% of a cache of 50 MiB: columns lie in 8 "
        "partitions" in said
    )
    assert "8 partitions" in str(plan)
    for other in (
        replace(REDDIT, features=16),
        replace(REDDIT, cache=1 << 30),
        replace(REDDIT, kind="max:column"),
        replace(REDDIT, nnz=BUCKETS_PAY - 1),
        replace(REDDIT, kind="map:column"),
        replace(REDDIT, rows=60_000_000, cols=60_000_000),
    ):  # two edges a row, which partitions would leave alone
        assert rule_plan(other).partitions == 1, other


def test_partitions_by_counting():
    rows, cols, nnz, row, cache = 1000, 1 << 20, 1 << 30, 64, 32 << 20  # 64 MiB, of which 16 are held
    assert column_partitions(rows, cols, nnz, row, row, cache) == 4  # slices of 16 MiB
    assert column_partitions(rows, cols, nnz, row, row, 4 * cache) == 1
    assert column_partitions(1 << 30, cols, nnz, row, row, cache) == 1  # rows of one edge
    assert column_partitions(0, 0, 0, row, row, cache) == 1


def test_partitions_are_compared():
    assert partitions_tried(REDDIT) == {1, 4, 8, 16}
    few = replace(REDDIT, nnz=BUCKETS_PAY)  # where the rules take one
    assert partitions_tried(few) == {1, 2, 8} and partitions_tried(replace(REDDIT, cache=1 << 30)) == {1}
    whole, cut = (BucketPlan("sm_90", 512, count).counts(REDDIT) for count in (1, 8))
    assert cut["far"] < 0.1 * whole["far"] and cut["stream"] > whole["stream"]


def partitions_tried(problem):
    return {plan.partitions for plan in candidates(problem) if isinstance(plan, BucketPlan)}


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_a_graph_in_partitions_by_the_rules(reduce, serial_gpu, monkeypatch):
    """Both directions; a maximum goes without."""
    monkeypatch.setattr(cuda_plan, "BUCKETS_PAY", 2048)
    monkeypatch.setattr(rows, "PART", 4)
    monkeypatch.setattr(buckets, "WARP", 4)
    monkeypatch.setattr(cuda_plans, "_gpu", lambda device, arch: replace(GPU, cache=8 << 10))
    generator = torch.Generator().manual_seed(0)
    row, col = torch.randint(0, 120, (6000,), generator=generator), torch.randint(0, 110, (6000,), generator=generator)
    graph = gsb.Graph.from_coo(row, col, (120, 110))
    x = torch.randn(110, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    assert plan_of(graph, f"{reduce}:column", 8, torch.float64).partitions == (1 if reduce == "max" else 2)
    found = gsb.spmm(graph, x, reduce=reduce)
    exact = torch.zeros(120, 8, dtype=torch.float64)
    exact = exact.scatter_reduce(
        0, row[:, None].expand(-1, 8), x[col], {"max": "amax"}.get(reduce, reduce), include_self=False
    )
    torch.testing.assert_close(found, exact, rtol=1e-11, atol=1e-11)
    cotangent = torch.randn(120, 8, generator=generator, dtype=torch.float64)
    expected = torch.autograd.grad(exact, x, cotangent)[0]
    torch.testing.assert_close(torch.autograd.grad(found, x, cotangent)[0], expected, rtol=1e-11, atol=1e-11)
