"""Sums over a graph in the formats of its matrix: values, gradients, who refuses, and that a search finds them."""

import contextlib
import os
import subprocess
import sys

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.formats.composed.fills import stripes
from gnn_sparse_backend.ops.composed.aggregation import stored_of
from gnn_sparse_backend.ops.core.plans import planned, problem_of, structure_fingerprint
from gnn_sparse_backend.planner.composed import FormatsPlan
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.planner.database import PlanDatabase
from gnn_sparse_backend.planner.decisions import decisions
from gnn_sparse_backend.tuning import search as search_module

FORMATS = "bsr(8)", "bsr(4) + csr", "hyb(1, 3)", "nm(2, 4)", "csr"
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 2e-2}


def ends(repeated, seed=0):
    """A full corner of 8 x 8, scattered edges in no order, rows without any, and some edges twice."""
    random = torch.Generator().manual_seed(seed)
    rows, columns = torch.arange(64) // 8, torch.arange(64) % 8
    keys = torch.randperm(29 * 37, generator=random)[:90]
    keys = torch.unique(torch.cat([rows * 37 + columns, keys]))
    keys = torch.cat([keys, keys[:9]]) if repeated else keys
    keys = keys[torch.randperm(keys.numel(), generator=random)]
    return keys // 37, keys % 37


@contextlib.contextmanager
def in_formats(graph, words, features, dtype, *kinds):
    plan = FormatsPlan(words, otherwise=RowPlan(1))
    with contextlib.ExitStack() as held:
        for kind in kinds:
            for side in (graph, graph.transpose()):
                held.enter_context(planned(side, kind, features, dtype, plan))
        yield plan


def oracle(row, column, shape, x, weight):
    messages = x[column] if weight is None else weight[:, None] * x[column]
    return x.new_zeros(shape[0], x.shape[1]).index_add(0, row, messages)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("repeated", [False, True], ids=["", "repeated"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("words", FORMATS)
def test_values_and_gradients(words, weighted, repeated, dtype):
    row, column = ends(repeated)
    graph = gsb.Graph.from_coo(row, column, (33, 37))
    random = torch.Generator().manual_seed(1)
    x = torch.randn(37, 19, generator=random, dtype=torch.float64).to(dtype)
    weight = torch.randn(row.numel(), generator=random, dtype=torch.float64).to(dtype) if weighted else None
    leaves = [each.clone().requires_grad_() for each in (x, weight) if each is not None]
    wide = [each.detach().double().requires_grad_() for each in leaves]
    with in_formats(graph, words, 19, dtype, "sum:column", "sum:column,edge") as plan, decisions() as told:
        found = gsb.spmm(graph, *leaves)
        assert gsb.last_run().steps[0].plan == plan
        flowing = torch.randn(33, 19, generator=random).to(dtype)
        with torch.autograd.set_multithreading_enabled(False):
            gradients = torch.autograd.grad(found, leaves, flowing)
    assert {each.plan for each in told if each.what.startswith("sum")} == {plan}
    expected = oracle(row, column, (33, 37), wide[0], wide[1] if weighted else None)
    wanted = torch.autograd.grad(expected, wide, flowing.double())
    for got, want in zip((found, *gradients), (expected, *wanted)):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_infinities_reach_no_row_without_an_edge_there():
    graph = gsb.Graph.from_coo(torch.tensor([0, 1]), torch.tensor([0, 1]), (8, 8))
    x = torch.ones(8, 16)
    x[1] = torch.inf
    with in_formats(graph, "bsr(8)", 16, x.dtype, "sum:column"):
        found = gsb.spmm(graph, x)
    assert found[0].eq(1).all() and found[1].isinf().all() and found[2:].eq(0).all()


def test_no_edges_and_no_features():
    none = torch.empty(0, dtype=torch.long)
    graph = gsb.Graph.from_coo(none, none, (5, 3))
    with in_formats(graph, "bsr(8)", 4, torch.float32, "sum:column"):
        assert gsb.spmm(graph, torch.ones(3, 4)).eq(0).all()


def test_what_is_no_product_runs_by_the_plan_beside():
    """The planner takes other messages, heads, a user's schedule and unknown formats for the same kind of sum."""
    row, column = ends(False)
    graph, x, w = gsb.Graph.from_coo(row, column, (33, 37)), torch.randn(37, 6), torch.randn(row.numel())
    heads, of_heads = torch.randn(37, 2, 3), torch.randn(row.numel(), 2)
    with in_formats(graph, "bsr(8)", 6, x.dtype, "sum:column,edge", "sum:column") as plan:
        difference = gsb.aggregate(graph, "sub(x0, x1)", [("u", x), ("e", w[:, None])])
        assert gsb.last_run().steps[0].plan == plan.otherwise
        gsb.spmm(graph, heads, of_heads)
        assert gsb.last_run().steps[0].plan == plan.otherwise
        with gsb.schedule("spmm", lambda schedule, request: None):
            gsb.spmm(graph, x)
            assert gsb.last_run().steps[0].plan == plan.otherwise
        gsb.spmm(graph, x)
        assert gsb.last_run().steps[0].plan == plan
    torch.testing.assert_close(difference, oracle(row, column, (33, 37), x, None) - sums(row, w)[:, None])
    with in_formats(graph, "unknown(3)", 6, x.dtype, "sum:column") as plan:
        gsb.spmm(graph, x)
        assert gsb.last_run().steps[0].plan == plan.otherwise


def sums(row, weight):
    return torch.zeros(33).index_add(0, row, weight)


PROGRAM = """
import torch
import gnn_sparse_backend as gsb
from tests.ops.composed.test_aggregation import ends
row, column = ends(False)
graph = gsb.Graph.from_coo(row, column, (33, 37))
gsb.spmm(graph, torch.ones(37, 16))
print(gsb.last_run().steps[0].plan)
"""


def test_a_search_finds_formats_and_other_processes_run_by_them(plans, monkeypatch):
    """The clock says that they are the fastest; the rest is as ever."""

    def halved(arms, *_):
        return {arm: 1.0 if isinstance(arm, FormatsPlan) and arm.formats == "bsr(8) + csr" else 2.0 for arm in arms}

    row, column = ends(False)
    graph, x = gsb.Graph.from_coo(row, column, (33, 37)), torch.ones(37, 16)
    monkeypatch.setattr(search_module, "promising", list)
    monkeypatch.setattr(search_module, "halved", halved)
    with pytest.MonkeyPatch.context() as one_by_one:
        one_by_one.setattr(search_module, "_made_ready", lambda decision, arms, *_: arms)
        report = gsb.precompile(graph, 16, "sum", budget="1h", backward=False, search=True, progress=False)
    (line,) = report.rows
    assert isinstance(line.plan, FormatsPlan) and str(line.plan) == "bsr(8) + csr"
    torch.testing.assert_close(gsb.spmm(graph, x), oracle(row, column, (33, 37), x, None))
    assert gsb.last_run().steps[0].plan == line.plan
    explained = gsb.explain(graph, "sum", 16)
    assert explained.plan == line.plan and "bsr: blocks of that side" in " ".join(str(explained).split())
    assert any(held.what == "InFormats(formats=(bsr(8), csr))" for held in gsb.memory(graph).rows)
    graph.release()
    assert not any("InFormats" in held.what for held in gsb.memory(graph).rows)
    problem = problem_of(graph, "sum:column", 16, torch.float32)
    assert PlanDatabase(plans.path).find(problem, lambda: structure_fingerprint(graph)).best == line.plan
    done = subprocess.run(
        [sys.executable, "-c", f"import torch; torch.set_num_threads({torch.get_num_threads()}){PROGRAM}"],
        env={**os.environ, "GSB_CACHE_DIR": str(plans.path.parent)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "bsr(8) + csr", done.stderr


def test_a_search_measures_formats_of_dense_blocks(plans, monkeypatch):
    """By the clock, and whatever is the fastest runs from then on."""
    monkeypatch.setattr("gnn_sparse_backend.ops.composed.aggregation.CANDIDATES", ("bsr(16)",))
    monkeypatch.setattr("gnn_sparse_backend.ops.composed.aggregation.BESIDE", ())
    monkeypatch.setattr(
        search_module, "promising", lambda found: [each for each in found if isinstance(each, FormatsPlan)]
    )
    block, row, column = torch.meshgrid(torch.arange(24), torch.arange(16), torch.arange(16), indexing="ij")
    ends = (block // 3 * 16 + row).flatten(), (block * 5 % 8 * 16 + column).flatten()
    graph, x, weight = gsb.Graph.from_coo(*ends, (128, 128)), torch.randn(128, 64), torch.randn(ends[0].numel())
    report = gsb.precompile(
        graph, 64, "weighted_sum", budget="1m", backward=False, search=True, progress=False, dtype=torch.float32
    )
    (line,) = report.rows
    measured = {plan: seconds for plan, _, seconds in line.tried if seconds is not None}
    assert "bsr(16)" in {plan.formats for plan in measured if isinstance(plan, FormatsPlan)}
    assert line.plan == min(measured, key=measured.get)
    torch.testing.assert_close(gsb.spmm(graph, x, weight), oracle(*ends, (128, 128), x, weight), rtol=1e-4, atol=1e-4)
    assert gsb.last_run().steps[0].plan == line.plan


def test_a_call_that_nobody_listens_to_counts_no_blocks(monkeypatch):
    monkeypatch.setattr("gnn_sparse_backend.ops.composed.aggregation.stored_of", None)
    gsb.spmm(gsb.Graph.from_coo(*ends(False), (33, 37)), torch.ones(37, 11))


def test_stripes_have_the_blocks_of_the_whole():
    rows = torch.arange(640).repeat_interleave(8)
    graph = gsb.Graph.from_coo(rows, rows // 8 * 8 % 640 // 8 * 8 + torch.arange(8).repeat(640), (640, 640))
    indptr, indices = stripes(graph.indptr, graph.indices, 32, 1500)
    assert 1000 < indices.numel() < 2500 and (indptr.numel() - 1) % 32 == 0
    (piece,) = stored_of(graph)["bsr(8)"]
    assert (piece.side, piece.slots) == (8, graph.num_edges)
