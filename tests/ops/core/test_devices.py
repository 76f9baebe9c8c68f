"""Operators on a GPU without one: the schedules for CUDA, run serially behind the very dispatch, against the CPU's
kernels.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import statistics
from gnn_sparse_backend.formats import structure
from gnn_sparse_backend.formats.hyb import HybFormat
from gnn_sparse_backend.ops.core.plans import plan_of, planned, problem_of
from gnn_sparse_backend.ops.message.calls import run_aggregate
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.ops.message.reductions import argmax_scatter as choices
from gnn_sparse_backend.planner.candidates import rule_plan
from gnn_sparse_backend.planner.cuda import plan as cuda_plan
from gnn_sparse_backend.planner.cuda import rows as cuda_rows
from gnn_sparse_backend.planner.cuda.buckets import BucketPlan
from gnn_sparse_backend.planner.cuda.plan import WARP, shares
from gnn_sparse_backend.planner.cuda.rows import LANES_PAY, LONG_ROW, PART, LanePlan, TeamPlan
from gnn_sparse_backend.runtime import devices
from gnn_sparse_backend.structures import build, checks
from gnn_sparse_backend.structures.relational import sources as rel_sources
from gnn_sparse_backend.tuning.tuning_tasks import tasks_of
from tests.ops.operators import OPERATORS, ROUNDING, some_graph, step
from tests.ops.serial_gpu import ARCH
from tests.ops.waits import unnoticed, without_waiting


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_and_its_gradients(name, request):
    torch.manual_seed(0)
    operands = OPERATORS[name].operands(some_graph(), torch.float64)
    expected = step(name, some_graph(), operands)
    launched = request.getfixturevalue("serial_gpu")
    found = step(name, some_graph(), operands)
    assert launched
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


# no vector; a vector in each of few lanes; a whole warp; more than a warp, with a last turn that is not full; several
# passes
@pytest.mark.parametrize("width", [1, 7, 12, 128, 200, 1100])
def test_widths(width, serial_gpu):
    graph = some_graph()
    x = torch.randn(12, width, dtype=torch.float64)
    weight = torch.randn(40, dtype=torch.float64)
    dense = torch.zeros(9, 12, dtype=torch.float64)
    row = torch.repeat_interleave(torch.arange(9), graph.in_degrees.long())
    dense.index_put_((row, graph.indices.long()), weight[graph.edge_numbers.long()], accumulate=True)
    torch.testing.assert_close(gsb.spmm(graph, x, weight), dense @ x, rtol=1e-12, atol=1e-12)
    u = torch.randn(9, width, dtype=torch.float64)
    scores = gsb.sddmm(graph, u, x)[graph.edge_numbers.long()]
    torch.testing.assert_close(scores, (u[row] * x[graph.indices.long()]).sum(1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("mean", [LANES_PAY, WARP])
def test_rows_of_few_features_are_summed_across_lanes(width, mean, serial_gpu):
    """Rows of no non-zeros, of fewer than there are lanes, of exactly as many, and of more."""
    lengths = torch.tensor([0, 1, mean, 3 * mean + 5, 2 * mean])
    row = torch.repeat_interleave(torch.arange(5), lengths)
    graph = gsb.Graph.from_coo(row, torch.arange(row.numel()) % 11, (5, 11))
    x, weight = torch.randn(11, width, dtype=torch.float64), torch.randn(row.numel(), dtype=torch.float64)
    assert plan_of(graph, "sum:column,edge", width, x.dtype) == LanePlan(ARCH, mean)
    terms = weight[:, None] * x[torch.arange(row.numel()) % 11]
    expected = torch.zeros(5, width, dtype=torch.float64).index_add(0, row, terms)
    torch.testing.assert_close(gsb.spmm(graph, x, weight), expected, rtol=1e-12, atol=1e-12)
    # dot products of so few features are computed by a lane for each edge
    assert plan_of(graph, "map:row,column", width, x.dtype) == LanePlan(ARCH, mean)
    u = torch.randn(5, width, dtype=torch.float64)
    dots = (u[row] * x[torch.arange(row.numel()) % 11]).sum(1)
    torch.testing.assert_close(gsb.sddmm(graph, u, x), dots, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("width", [12, 200])
@pytest.mark.parametrize("op", ["sum", "weighted mean", "max with its edges"])
def test_edges_of_long_rows_are_loaded_in_stretches(op, width, serial_gpu):
    """Rows of no stretch of 32 edges, of one that is not full, of exactly one, of several; edges in an order of their
    own.
    """
    lengths = torch.tensor([0, 5, WARP, 3 * WARP + 7, 2 * WARP])
    order = torch.randperm(int(lengths.sum()), generator=torch.Generator().manual_seed(0))
    row = torch.repeat_interleave(torch.arange(5), lengths)[order]
    col = torch.arange(row.numel()) % 11
    graph = gsb.Graph.from_coo(row, col, (5, 11))
    assert plan_of(graph, "max:column", width, torch.float64) == TeamPlan(ARCH, cached=True)
    x, weight = torch.randn(11, width, dtype=torch.float64), torch.randn(row.numel(), dtype=torch.float64)
    if op == "max with its edges":
        out, edges = run_aggregate(message_op("x0", ("column",), "max"), graph, [x], ("number",), -1)
        for r in range(1, 5):
            own = x[col].masked_fill((row != r)[:, None], float("-inf"))
            torch.testing.assert_close(out[r], own.amax(0), rtol=0, atol=0)
            assert own.gather(0, edges[r : r + 1].long()).eq(out[r]).all() and row[edges[r].long()].eq(r).all()
        assert edges[0].eq(-1).all()
        return
    terms = x[col] if op == "sum" else weight[:, None] * x[col]
    expected = torch.zeros(5, width, dtype=torch.float64).index_add(0, row, terms)
    if op == "sum":
        found = gsb.spmm(graph, x)
    else:
        found = gsb.gspmm(graph, "mul", "mean", u=x, e=weight[:, None])
        expected /= lengths.clamp(min=1)[:, None]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "op, dtype, longest, partitions",
    [
        ("sum", torch.float64, 4, 1),
        ("weighted mean", torch.float64, 32, 1),
        ("weighted mean", torch.bfloat16, 4, 3),
        ("of both ends", torch.float64, 4, 1),
    ],
    ids=["parts", "whole rows", "column partitions", "operands at rows"],
)
def test_rows_in_buckets(op, dtype, longest, partitions, serial_gpu):
    """Rows of no edges, of one, of powers of two and of more; edges in an order of their own; an infinity that no edge
    leads to.
    """
    lengths = torch.tensor([0, 1, 2, 3, 8, 9, 31, 32, 0, 4])
    order = torch.randperm(int(lengths.sum()), generator=torch.Generator().manual_seed(0))
    row, col = (
        torch.repeat_interleave(torch.arange(10), lengths)[order],
        (torch.arange(int(lengths.sum())) * 5 % 11)[order],
    )
    graph = gsb.Graph.from_coo(row, col, (10, 12))
    torch.manual_seed(0)
    x, y, w = torch.randn(12, 24).to(dtype), torch.randn(10, 24).to(dtype), torch.randn(row.numel(), 1).to(dtype)
    x[11] = float("inf")
    message, places, operands, terms = {
        "sum": ("x0", ("column",), [x], x[col].double()),
        "of both ends": ("mul(x0, x1)", ("row", "column"), [y, x], y[row].double() * x[col].double()),
    }.get(op, ("mul(x0, x1)", ("column", "edge"), [x, w], x[col].double() * w.double()))
    of = message_op(message, places, "mean" if "mean" in op else "sum")
    expected = torch.zeros(10, 24, dtype=torch.float64).index_add(0, row, terms)
    if "mean" in op:
        expected /= lengths.clamp(min=1)[:, None]
    plan = BucketPlan(ARCH, longest, partitions)
    with planned(graph, of.kind, 24, x.dtype, plan):
        found = run_aggregate(of, graph, operands)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype] / 10)
        assert serial_gpu == ["aggregate"] * (1 if longest == 32 else 2)
        assert torch.equal(found, run_aggregate(of, graph, operands))


def test_skewed_graphs_go_by_buckets(monkeypatch, calls_to, serial_gpu):
    """A graph of so many edges, its backward too; the format is made once, and waits for the GPU there alone."""
    monkeypatch.setattr(cuda_plan, "BUCKETS_PAY", LONG_ROW)
    monkeypatch.setattr(cuda_rows, "PART", 4)
    made = calls_to(HybFormat, "from_csr")
    row = torch.cat([torch.zeros(1000, dtype=torch.int64), torch.arange(1500)])
    graph = gsb.Graph.from_coo(row, torch.arange(2500) % 300, (1500, 300))
    x = torch.randn(300, 8, dtype=torch.float64, requires_grad=True)
    expected = torch.zeros(1500, 8, dtype=torch.float64).index_add(0, row, x[torch.arange(2500) % 300])
    repeats, counts, waits = (
        calls_to(of, name) for of, name in ((torch, "repeat_interleave"), (torch, "bincount"), (torch.Tensor, "tolist"))
    )
    for _ in range(2):
        found = gsb.spmm(graph, x)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert all(call.named.get("output_size") is not None for call in repeats)  # or it would wait for the sum
    # rows and edges of three buckets, and whether all rows are whole
    assert not counts and [len(*call.arguments) for call in waits] == [2 * 3 + 1]
    assert len(made) == 1 and serial_gpu == ["aggregate"] * 4  # buckets, and parts of the one long row, each time
    problem = problem_of(graph, "sum:column", 8, torch.float64)
    assert isinstance(rule_plan(problem), BucketPlan)
    for other in ({"longest": 7}, {"nnz": LONG_ROW - 1}, {"kind": "max:column"}, {"features": 2}):
        assert not isinstance(rule_plan(replace(problem, **other)), BucketPlan), other


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_long_rows_are_cut_into_parts(reduce, serial_gpu):
    edges = LONG_ROW + PART + 3
    row, col = torch.arange(edges + 50) % 2 * 4, torch.arange(edges + 50) % 7
    row[:edges] = 2
    graph = gsb.Graph.from_coo(row, col, (6, 7))
    x = torch.randn(7, 5, dtype=torch.float64)
    out = gsb.gspmm(graph, "copy_u", reduce, u=x)
    assert serial_gpu == ["aggregate", "aggregate"]
    for r in (0, 2, 4):
        own = x[col[row == r]]
        torch.testing.assert_close(
            out[r], own.amax(0) if reduce == "max" else getattr(own, reduce)(0), rtol=1e-11, atol=1e-11
        )
    assert not out[[1, 3, 5]].any()
    scores = gsb.sddmm(graph, torch.ones(6, 5, dtype=torch.float64), x)
    torch.testing.assert_close(scores, x.sum(1)[col], rtol=1e-12, atol=1e-12)


def test_operands_of_any_layout(serial_gpu):
    """Vector loads want rows that are aligned: what is not is copied."""
    graph = some_graph()
    x = torch.randn(12, 8)
    expected = gsb.spmm(graph, x)
    for odd in (
        torch.cat([x, x], 1)[:, :8],
        x.T.contiguous().T,
        torch.cat([torch.zeros(1), x.flatten()])[1:].view(12, 8),
    ):
        torch.testing.assert_close(gsb.spmm(graph, odd), expected, rtol=0, atol=0)


def test_graphs_of_all_sizes_share_their_kernels(serial_gpu):
    """As in mini-batches: nothing is planned, compiled or kept per size."""
    of = message_op("x0", ("column",), "sum")
    before = None
    for rows in range(4, 40):
        graph = some_graph(rows)
        run_aggregate(of, graph, [torch.ones(12, 6)])
        kept = {of.name: of.made for of in statistics() if "kernel" in of.name or "calls" in of.name}
        assert before in (None, kept)
        before = kept


def test_no_edges_and_no_rows(serial_gpu):
    none = torch.zeros(0, dtype=torch.int64)
    assert gsb.spmm(gsb.Graph.from_coo(none, none, (4, 3)), torch.ones(3, 2)).eq(0).all()
    assert gsb.spmm(gsb.Graph.from_coo(none, none, (0, 3)), torch.ones(3, 2)).shape == (0, 2)


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_structures_are_those_of_the_cpu(index, zoo, request):
    """What NumPy and SciPy make on the CPU, PyTorch makes on a GPU: the same numbers in the same order and type, edges'
    included.
    """

    def made():
        found = []
        for row, col, shape in zoo.values():
            row, col = torch.from_numpy(row).to(index), torch.from_numpy(col).to(index)
            for graph in (gsb.Graph.from_coo(row, col, shape), gsb.Graph.from_coo(row, col, shape).transpose()):
                found += [graph.indptr, graph.indices, graph.edge_numbers]
        return found

    expected = made()
    request.getfixturevalue("serial_gpu")
    monkeypatch = request.getfixturevalue("monkeypatch")
    with monkeypatch.context() as patch:
        for name in ("numpy", "__array__"):
            patch.setattr(torch.Tensor, name, None)
        found = made()
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


def test_bad_structures_are_refused_in_the_same_words(request):
    row, col = torch.tensor([0, 7]), torch.tensor([1, 1])
    texts = []
    for way in ("cpu", "gpu"):
        if way == "gpu":
            request.getfixturevalue("serial_gpu")
        with pytest.raises(ValueError) as raised:
            gsb.Graph.from_coo(row, col, (4, 3))
        texts.append(str(raised.value))
    assert texts[0] == texts[1] and "7" in texts[0]


def test_copied_maxima_are_for_the_cpu(request):
    """On a GPU what flows back goes by the number of an edge: threads would add to the same rows."""
    of = message_op("x0", ("column",), "max", "last")
    graph, x = some_graph(9, 12, 400), torch.ones(12, 8)
    assert choices.kept_choice(of, graph, [x]) == "column"
    request.getfixturevalue("serial_gpu")
    assert choices.kept_choice(of, graph, [x]) == "number"


def test_construction_waits_for_a_gpu_as_often_as_it_must(serial_gpu, monkeypatch):
    """For the ranges of all arrays at once, and for whether they are in order; `read` is where it waits, and nothing
    else does.
    """
    waits = []

    def counted(*values, tolist=torch.Tensor.tolist):
        waits.append(len(values))
        return unnoticed(tolist, torch.stack([v.to(torch.int64) for v in values]))

    def made(make, sizes: int = 0):
        waits.clear()
        return without_waiting(make, monkeypatch, sizes), tuple(waits)

    for module in (checks, build, structure):
        monkeypatch.setattr(module, "read", counted)
    row, col, relation = torch.tensor([[3, 0, 3, 1, 1], [1, 2, 0, 2, 2], [0, 0, 2, 2, 0]])
    graph, found = made(lambda: gsb.Graph.from_coo(row, col, (4, 3)))
    assert found == (5,)
    assert made(graph.transpose)[1] == (2,)
    assert made(lambda: gsb.Graph.from_csr(graph.indptr, graph.indices, graph.shape, graph.edge_ids))[1] == (3, 4, 2)
    kinds = rel_sources.Parts(
        {"a": 3}, {"b": 4}, (("a", "x", "b"), ("a", "y", "b")), [("a", col, "b", row), ("a", col[:2], "b", row[:2])]
    )
    for make in (
        lambda: gsb.RelGraph.from_triples(col, row, relation, (4, 3)),
        lambda: gsb.RelGraph.from_graph(graph, relation),
        lambda: gsb.RelGraph._of_parts(kinds, None, None),
    ):
        rel, found = made(make)
        assert found == (6,) and rel.num_relations == (2 if rel.edge_counts else 3)
    assert rel.relation.tolist() == [0] * 5 + [1] * 2
    assert (
        made(lambda: [rel.side(end).pairs for end in (False, True)], sizes=1)[1] == ()
    )  # the numbers of pairs at both ends


def test_the_other_devices_are_refused_in_words():
    with pytest.raises(ValueError, match="spmm: there are no kernels for xpu:0, only for the CPU and for CUDA"):
        devices.check_kernels("spmm", torch.device("xpu:0"))


def test_plans_are_for_devices_with_kernels():
    elsewhere = SimpleNamespace(device=torch.device("xpu:0"))
    with pytest.raises(ValueError, match="plans: there are no kernels for xpu:0"):
        tasks_of(elsewhere, ["sum"], [64], torch.float32, True)


def test_rules():
    assert shares(128, 4) == shares(4096, 4) and (shares(128, 4).lanes, shares(128, 4).part) == (32, 4)
    assert (shares(7, 4).lanes, shares(7, 4).part) == (8, 1)  # no vector divides it
    assert (shares(64, 8).lanes, shares(64, 8).part) == (32, 2)  # vectors of 16 bytes
    assert TeamPlan("sm_90") != TeamPlan("sm_80")
    assert TeamPlan("sm_90") == TeamPlan("sm_90") and hash(TeamPlan("sm_90")) == hash(TeamPlan("sm_90"))


@pytest.mark.parametrize("name", ["attention", "gatv2_attention", "segment_reduce_max", "segment_mm", "gspmm_last_max"])
def test_tensors_are_made_where_the_operands_are(name, serial_gpu):
    """A tensor that says nothing of its device would be made on another one here, and meet the operands."""
    graph = some_graph()
    operands = OPERATORS[name].operands(graph)
    with torch.device("meta"):
        for result in step(name, graph, operands, torch.ones_like(OPERATORS[name].run(graph, *operands))):
            assert result.is_cpu


def test_graphs_are_made_where_their_edges_are(serial_gpu):
    source, destination, relation = torch.tensor([[0, 2, 1, 1], [1, 0, 0, 1], [0, 1, 1, 0]])
    with torch.device("meta"):
        graph = gsb.Graph.from_edge_index(torch.stack([source, destination]))
        assert graph.transpose().indices.is_cpu and graph.in_degrees.is_cpu and graph.edge_numbers.is_cpu
        rel = gsb.RelGraph.from_triples(source, destination, relation, (2, 3))
        weight = torch.ones(2, 4, 5, device="cpu", requires_grad=True)
        out = gsb.rgms(rel, torch.ones(3, 4, device="cpu"), weight, reduce="mean")
        assert out.is_cpu and torch.autograd.grad(out.sum(), weight)[0].is_cpu
