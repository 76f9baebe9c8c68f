"""Sums over chunks of non-zeros behind the dispatch to a GPU, run serially, against sums in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core.plans import planned
from gnn_sparse_backend.ops.message.calls import run_aggregate
from gnn_sparse_backend.ops.message.executables import segments_cuda as cuda_segments
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.planner.cuda import plan as cuda_plan
from gnn_sparse_backend.planner.cuda.chunks import ChunkPlan
from gnn_sparse_backend.planner.cuda.plan import WARP
from gnn_sparse_backend.planner.cuda.rows import LANES_PAY, LONG_ROW, PART, LanePlan, TeamPartPlan
from gnn_sparse_backend.planner.cuda.strategies import rule_plan
from gnn_sparse_backend.planner.problem import CudaProblem
from tests.ops.serial_gpu import ARCH

ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}  # of the largest sum
PIECES = LanePlan(ARCH, LANES_PAY)
LENGTHS = {
    "odd": (0, 5, 1, 40, 0, 0, 31, 2, 700, 1, 1, 0),
    "one row": (0, 9 * WARP + 5, 0),
    "one non-zero": (0, 1),
    "none": (0, 0, 0),
}


def graph_of(lengths):
    """(graph, row, column) of edges in an order of their own; no edge leads to the last of 12 columns."""
    count = sum(lengths)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    row = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[order]
    col = torch.arange(count) * 5 % 11
    return gsb.Graph.from_coo(row, col, (len(lengths), 12)), row, col


@pytest.mark.parametrize(
    "lengths, message, reduce, width, dtype",
    [
        ("odd", "x0", "sum", 1, torch.float64),
        ("odd", "mul(x0, x1)", "mean", 4, torch.float32),
        ("odd", "mul(x0, x1)", "sum", 3, torch.float16),
        ("odd", "mul(x0, x1)", "mean", 2, torch.bfloat16),
        ("odd", "mul(mul(x0, x1), x2)", "sum", 2, torch.float64),
        ("one row", "mul(x0, x1)", "mean", 4, torch.float32),
        ("one non-zero", "x0", "sum", 1, torch.float64),
        ("none", "x0", "sum", 1, torch.float64),
    ],
)
def test_sums_over_chunks(lengths, message, reduce, width, dtype, serial_gpu):
    """Bit by bit the same twice; an infinity that no edge leads to is in no sum."""
    graph, row, col = graph_of(LENGTHS[lengths])
    torch.manual_seed(0)
    rows, edges = graph.shape[0], row.numel()
    x, w, y = (torch.randn(n, k).to(dtype) for n, k in ((12, width), (edges, 1), (rows, width)))
    x[11] = float("inf")
    count = message.count("x")
    of = message_op(message, ("column", "edge", "row")[:count], reduce)
    terms = x[col].double() * (w.double() if count > 1 else 1.0) * (y[row].double() if count > 2 else 1.0)
    expected = torch.zeros(rows, width, dtype=torch.float64).index_add(0, row, terms)
    if reduce == "mean":
        expected /= torch.tensor(LENGTHS[lengths]).clamp(min=1)[:, None]
    with planned(graph, of.kind, width, x.dtype, ChunkPlan(PIECES)):
        found = run_aggregate(of, graph, [x, w, y][:count])
        again = run_aggregate(of, graph, [x, w, y][:count])
    assert found.dtype == dtype and torch.equal(found, again)
    torch.testing.assert_close(
        found.double(), expected, rtol=0, atol=ROUNDING[dtype] * max(1.0, float(expected.abs().max()))
    )
    assert serial_gpu == ["aggregate"] * (4 if edges else 0)


def test_pieces_of_a_very_long_row_are_cut_into_parts(serial_gpu):
    graph, row, col = graph_of((3, 2 * PART * WARP, 7))
    x = torch.randn(12, 2, dtype=torch.float64)
    expected = torch.stack([x[col[row == r]].mean(0) for r in range(3)])
    of = message_op("x0", ("column",), "mean")
    with planned(graph, of.kind, 2, torch.float64, ChunkPlan(TeamPartPlan(PIECES, PART))):
        torch.testing.assert_close(run_aggregate(of, graph, [x]), expected, rtol=0, atol=1e-12)
    assert serial_gpu == ["aggregate"] * 3


@pytest.mark.parametrize(
    "message, reduce, dtype", [("stored(x0)", "sum", torch.bfloat16), ("x0", "max", torch.float64)]
)
def test_what_is_not_cut_into_chunks(message, reduce, dtype, serial_gpu):
    """A message that is rounded as it is stored, and a maximum, run in one pass."""
    graph, row, col = graph_of(LENGTHS["odd"])
    x = (torch.randint(-8, 9, (12, 2)) / 4).to(dtype)
    of = message_op(message, ("column",), reduce)
    with planned(graph, of.kind, 2, x.dtype, ChunkPlan(PIECES)):
        found = run_aggregate(of, graph, [x])
    own = x[col[row == 6]].double()
    assert serial_gpu == ["aggregate"] and torch.equal(
        found[6].double(), own.amax(0) if reduce == "max" else own.sum(0)
    )


def test_skewed_graphs_of_short_rows_go_by_chunks(monkeypatch, calls_to, serial_gpu):
    """A large graph, its backward too; the chunks are made once, and wait for the GPU there alone."""
    monkeypatch.setattr(cuda_plan, "BUCKETS_PAY", LONG_ROW)
    made = calls_to(cuda_segments, "chunk_rows")
    row = torch.cat([torch.zeros(1000, dtype=torch.int64), torch.arange(1500)])
    col = torch.arange(2500) % 300
    graph = gsb.Graph.from_coo(row, col, (1500, 300))
    x = torch.randn(300, 2, dtype=torch.float64, requires_grad=True)
    expected = torch.zeros(1500, 2, dtype=torch.float64).index_add(0, row, x[col])
    graph.transpose()  # which waits to hear whether edges are in order
    waits, reads = calls_to(torch.Tensor, "nonzero"), calls_to(torch.Tensor, "tolist")
    for _ in range(2):
        found = gsb.spmm(graph, x)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert len(made) == len(waits) == 1 and not reads and serial_gpu == ["aggregate"] * 4
    found.sum().backward()
    torch.testing.assert_close(x.grad[:, 0], torch.bincount(col, minlength=300).double())


def test_when_chunks_are_planned():
    pays = cuda_plan.BUCKETS_PAY
    skewed = CudaProblem("sum:edge", pays // 10, 100, pays, 4, "float32", 1, longest=2000, arch="sm_90")
    pieces = LanePlan("sm_90", LANES_PAY)
    assert rule_plan(skewed) == ChunkPlan(pieces)
    assert rule_plan(replace(skewed, longest=100_000)) == ChunkPlan(TeamPartPlan(pieces, PART))
    for other in (
        {"features": 5},
        {"features": 0},
        {"kind": "map:edge"},
        {"kind": ""},
        {"nnz": pays - 1},
        {"longest": 79},
        {"rows": pays // WARP},
    ):
        assert not isinstance(rule_plan(replace(skewed, **other)), ChunkPlan), other
