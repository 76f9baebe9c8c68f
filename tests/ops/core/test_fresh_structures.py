"""What is looked at of a structure that was never seen before, and how often: a mini-batch waits for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.formats.partitions.row_groups import heaviest, look_at_rows
from gnn_sparse_backend.ops.core.plans import plan_of
from gnn_sparse_backend.ops.message.executables.buckets_cuda import row_buckets
from gnn_sparse_backend.planner import choose
from gnn_sparse_backend.planner.cost import DEFAULT_UNITS
from gnn_sparse_backend.planner.cpu.passes import LONG_ROW
from gnn_sparse_backend.planner.database import PlanDatabase
from gnn_sparse_backend.planner.problem import Problem, longest_row
from gnn_sparse_backend.structures import build, facts
from gnn_sparse_backend.structures.pieces import Piece


def batch(seed: int, rows: int = 1000, fan_out: int = 40, dtype: torch.dtype = torch.int32) -> gsb.Graph:
    rng = np.random.default_rng(seed)
    indptr = torch.from_numpy(np.concatenate(([0], rng.integers(0, fan_out + 1, rows).cumsum()))).to(dtype)
    return gsb.Graph.from_csr(indptr, torch.from_numpy(rng.integers(0, 4000, int(indptr[-1]))).to(dtype), (rows, 4000))


def test_plan_and_rows_share_one_look(calls_to, set_threads):
    set_threads(2)
    looks = calls_to(facts, "look_at_rows")
    graph, x = batch(0), torch.randn(4000, 64)
    gsb.spmm(graph, x)
    assert graph.num_edges >= LONG_ROW and len(looks) == 1 and plan_of(graph, "sum:column", 64, x.dtype).groups == 32
    gsb.spmm(graph, x, reduce="max")
    assert len(looks) == 1


@pytest.mark.parametrize("where", [0, 13, 500, 998, 999])
def test_a_look_misses_no_row_that_matters(where):
    rng = np.random.default_rng(where)
    for longest in (5, 40, 400, 4000, 40_000):
        degrees = rng.integers(0, 11, 1000)
        degrees[where] = longest
        offsets = np.concatenate(([0], degrees.cumsum()))
        most, nnz = int(degrees.max()), int(degrees.sum())
        found = longest_row(offsets, 32, heaviest(look_at_rows(offsets)))
        assert found == longest_row(offsets, 32) == (most if most * 32 > nnz else 0)


@pytest.mark.parametrize("rows, edges", [(0, 0), (1, 0), (7, 0), (1, 1), (900, 9000), (3, 5000)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_offsets_of_sorted_rows(rows, edges, dtype):
    """Some rows without edges."""
    rng = np.random.default_rng(rows + edges)
    row = np.sort(rng.integers(rows // 3, max(rows - rows // 4, 1), edges))
    offsets = build.compress(torch.from_numpy(row).to(dtype), rows)
    assert offsets.dtype == dtype
    assert offsets.tolist() == [0, *(int((row <= i).sum()) for i in range(rows))]


@pytest.mark.parametrize(
    "row, said",
    [
        ([0, 1, 4], r"row\[2\] = 4 is out of range: there are 4 destinations"),
        ([-1, 0, 3], r"row\[0\] = -1 is out of range"),
        ([3, 4, 0], r"row\[1\] = 4 is out of range"),
    ],
)
def test_rows_out_of_range_in_order_or_not(row, said):
    with pytest.raises(ValueError, match=said):
        gsb.Graph.from_coo(torch.tensor(row), torch.zeros(3, dtype=torch.int64), (4, 1))


@pytest.mark.parametrize("rows", [0, 1, 5, 1000])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_degrees(rows, dtype):
    graph = batch(1, rows, dtype=dtype)
    piece = Piece(graph.shape, graph.indptr.to(dtype), graph.indices.to(dtype), None)
    found = facts.in_degrees(piece)
    assert found.dtype == dtype and torch.equal(found, piece.indptr.diff())


def test_equal_plans_are_one_object(request, set_threads):
    """Kernels are looked up by their plans at every call, and objects of their own would be compared."""
    set_threads(2)
    x = torch.randn(4000, 64)
    for way in ("cpu", "gpu"):
        if way == "gpu":
            request.getfixturevalue("serial_gpu")
        plans = [
            plan_of(batch(seed, rows), "sum:column", 64, x.dtype) for seed, rows in ((0, 1000), (1, 1500), (2, 2000))
        ]
        assert plans[0] is plans[1] is plans[2]


def test_the_model_is_asked_once_for_problems_about_as_large(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        choose, "candidates", lambda problem, all_of=choose.candidates: asked.append(problem) or all_of(problem)
    )
    known = PlanDatabase(tmp_path / "plans.json")

    def plan(rows: int):
        return choose.plan_for(Problem("sum:column", rows, 4000, 20_000, 64, "float32", 2), lambda: "", known)

    first = plan(1000)
    count = len(asked)
    assert count and plan(1001) is first and len(asked) == count
    plan(2000)
    assert len(asked) > count
    count = len(asked)
    known.set_units(DEFAULT_UNITS)  # as after a calibration
    assert plan(1000) == first and len(asked) > count


def test_buckets_are_handed_over_as_they_are_kept(serial_gpu):
    """Thirty arrays of a structure are converted once; those of edges in another order anew."""
    row = torch.tensor([0, 1, 1, 2, 2, 2, 2, 2, 2, 4])
    graph = gsb.Graph.from_coo(row, torch.arange(10), (5, 10))
    buckets = row_buckets(graph, 4, 1)
    numbers = graph.edge_numbers
    first = buckets.arguments(numbers)
    assert buckets.arguments(numbers) is first and buckets.arguments(None) is buckets.arguments(None)
    of_buckets = len(buckets.counts)
    assert [len(x) for x in first] == [of_buckets, 2 * of_buckets]
    assert [len(x) for x in buckets.arguments(None)] == [of_buckets, of_buckets]
    for count, rows, entries, positions in zip(buckets.counts, buckets.rows, first[1][1::2], buckets.positions):
        entries = torch.from_dlpack(entries)
        assert rows.numel() == count and torch.equal(entries[positions >= 0], numbers[positions[positions >= 0].long()])
    other = buckets.arguments(numbers.flip(0))
    assert other is not first and not torch.equal(*(torch.from_dlpack(x[1][-1]) for x in (first, other)))
