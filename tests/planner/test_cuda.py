"""gsb.precompile, gsb.explain and the tuner for a GPU, without one: schedules for CUDA run serially behind the very
dispatch.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import cli
from gnn_sparse_backend.compiler.codegen import BuildError
from gnn_sparse_backend.ops.core import cuda_build
from gnn_sparse_backend.ops.core.plans import database_of, plan_of, planned, problem_of, structure_fingerprint
from gnn_sparse_backend.planner.candidates import candidates, rule_plan, trials
from gnn_sparse_backend.planner.cpu.passes import PartPlan
from gnn_sparse_backend.planner.cuda import blocks as cuda_bsr
from gnn_sparse_backend.planner.cuda import plan as cuda_plan
from gnn_sparse_backend.planner.cuda import rows as cuda_rows
from gnn_sparse_backend.planner.cuda.blocks import BlockPlan
from gnn_sparse_backend.planner.cuda.buckets import BucketPlan
from gnn_sparse_backend.planner.cuda.cost import default_units
from gnn_sparse_backend.planner.cuda.plan import CudaPlan
from gnn_sparse_backend.planner.cuda.rows import LONG_ROW, TeamPartPlan, TeamPlan
from gnn_sparse_backend.planner.database import PlanDatabase
from gnn_sparse_backend.runtime import timers
from gnn_sparse_backend.structures.accounting.held import name_of
from gnn_sparse_backend.tuning import calibrate_cuda as cuda_calibration
from gnn_sparse_backend.tuning import tune
from gnn_sparse_backend.tuning.tune import problem_of_task, time_plans
from gnn_sparse_backend.tuning.tuning_tasks import Task, random_tensor
from tests.ops.serial_gpu import ARCH, GPU

CPU = torch.device("cpu")


def skewed(square: bool = False) -> gsb.Graph:
    """Rows of one non-zero and one of 1,000; as many edges as rules look at. square: its own transpose."""
    row = torch.cat([torch.zeros(1000, dtype=torch.int64), torch.arange(1500)])
    col = torch.arange(2500) % 300
    if not square:
        return gsb.Graph.from_coo(row, col, (1500, 300))
    edges = torch.unique(torch.cat([row * 1500 + col, col * 1500 + row]))
    return gsb.Graph.from_coo(edges // 1500, edges % 1500, (1500, 1500))


@pytest.fixture
def rules_of_large_graphs(monkeypatch):
    """Graphs of few edges count as large, and parts of rows are short, so that there are few buckets to compile."""
    monkeypatch.setattr(cuda_plan, "BUCKETS_PAY", LONG_ROW)
    monkeypatch.setattr(cuda_rows, "PART", 16)


@pytest.fixture
def builds(serial_gpu, monkeypatch):
    """The names of the programs that are compiled meanwhile."""
    found = []

    def counted(program, *rest, build=cuda_build.build):
        found.append(program.name)
        return build(program, *rest)

    monkeypatch.setattr(cuda_build, "build", counted)
    return found


def favour(monkeypatch, wanted):
    """A timer that runs what it times, and finds plans of which ``wanted(plan)`` is true ten times as fast as the
    others.
    """

    def timer_of(device, clock=None):
        def timed(run, count):
            run()
            return 1e-5 if wanted(current[0]) else 1e-4

        return timed

    current = [None]

    def spy(graph, kind, features, dtype, plan, planned=planned):
        current[0] = plan
        return planned(graph, kind, features, dtype, plan)

    monkeypatch.setattr(tune, "planned", spy)
    monkeypatch.setattr(tune, "timer_of", timer_of)


def refuse(*_):
    raise AssertionError("a value was read back")


@pytest.mark.short(1)
@pytest.mark.usefixtures("plans", "rules_of_large_graphs")
@pytest.mark.parametrize(
    "op, square, width",
    [
        ("weighted_mean", False, 13),
        ("sum", True, 3),
        ("max", False, 9),
        ("dot", False, 11),
    ],
)
def test_after_precompile_a_step_compiles_makes_and_waits_for_nothing(op, square, width, builds, monkeypatch):
    graph = skewed(square)
    report = gsb.precompile(graph, width, (op,), "60s", progress=False)
    assert report.complete and builds
    builds.clear()
    sides = graph, graph.transpose()
    kept = [(set(side.plans), set(side.facts)) for side in sides]
    x = torch.randn(graph.shape[1], width, requires_grad=True)
    other = torch.rand(*(graph.shape[0], width) if op == "dot" else (graph.num_edges,), requires_grad=True)
    with monkeypatch.context() as patch:
        for name in ("item", "__bool__", "__int__", "__index__", "__float__", "tolist", "nonzero", "cpu", "numpy"):
            patch.setattr(torch.Tensor, name, refuse)
        if op == "dot":
            out = gsb.sddmm(graph, other, x)
        else:
            out = gsb.spmm(graph, x, other if op.startswith("weighted") else None, op.removeprefix("weighted_"))
        out.backward(torch.ones_like(out))
    assert builds == [] and [(set(side.plans), set(side.facts)) for side in sides] == kept
    assert report.graphs == [report.rows[0].graph] and next(row.op for row in report.rows) == op


def test_the_next_process_finds_what_was_fastest(plans, serial_gpu, rules_of_large_graphs, monkeypatch):
    """And it runs by that, although the rules say otherwise; formats of other plans are not kept."""
    graph = skewed()
    favour(monkeypatch, lambda plan: plan == BucketPlan(ARCH, 2))
    report = gsb.precompile(graph, 8, "mean", "60s", backward=False, progress=False)
    (row,) = report.rows
    assert row.state == "measured" and row.plan == BucketPlan(ARCH, 2) and row.seconds == pytest.approx(1e-5)
    assert row.rules == pytest.approx(1e-4) and "buckets of up to 2" in str(report)
    problem = problem_of(graph, "mean:column", 8, torch.float32)
    assert row.plans == len(trials(problem)) >= 4 and rule_plan(problem) == BucketPlan(ARCH, 16)
    names = [name_of(fact) for fact in graph.facts]
    assert [name for name in names if "RowBuckets" in name] == ["RowBuckets(widest=2, partitions=1)"]
    assert "TeamParts(longest=16)" not in names

    later = PlanDatabase(plans.path).on(GPU.machine, default_units(GPU))
    assert later.find(problem, lambda: structure_fingerprint(graph)).best == row.plan and later.verify() == []
    assert PlanDatabase(plans.path).find(problem, lambda: structure_fingerprint(graph)) is None, (
        "the CPU's own are others"
    )
    again = skewed()
    serial_gpu.clear()
    x = torch.randn(300, 8)
    found = gsb.spmm(again, x, reduce="mean")
    assert plan_of(again, "mean:column", 8, torch.float32) == row.plan
    ends = torch.repeat_interleave(torch.arange(1500), graph.in_degrees.long())
    expected = torch.zeros(1500, 8).index_add(0, ends, x[graph.indices.long()]) / graph.in_degrees.clamp(min=1)[:, None]
    torch.testing.assert_close(found, expected)
    known = gsb.precompile(again, 8, "mean", "60s", backward=False, progress=False)
    assert [each.state for each in known.rows] == ["known"]


@pytest.mark.parametrize("gpu", [False, True], ids=["CPU", "GPU"])
def test_what_one_half_type_took_is_not_said_of_the_other(gpu, plans, request):
    if gpu:
        request.getfixturevalue("serial_gpu")
    problem = problem_of(skewed(), "sum:column", 8, torch.float16)
    measured = TeamPartPlan(TeamPlan(ARCH), 7) if gpu else PartPlan(2, part=7)
    assert isinstance(rule_plan(problem), CudaPlan) == gpu
    database_of(CPU).add(problem, structure_fingerprint(skewed()), {measured: 1e-6})
    for dtype in (torch.float16, torch.bfloat16):
        found = plan_of(skewed(), "sum:column", 8, dtype), gsb.explain(skewed(), "sum", 8, dtype=dtype).plan
        assert (found == (measured, measured)) == (dtype is torch.float16) and found[0] == found[1]


def test_a_short_budget_compiles_what_the_rules_say(plans, builds, monkeypatch):
    """Steps come before measurements; without any time there are neither."""
    graph, width = skewed(), 15
    assert {row.state for row in gsb.precompile(graph, width, budget=0, progress=False).rows} == {
        "not reached"
    } and not builds
    monkeypatch.setattr("gnn_sparse_backend.tuning.precompile._measure", lambda *_: None)
    report = gsb.precompile(graph, width, budget="60s", progress=False)
    assert {row.state for row in report.rows} == {"compiled"} and not report.complete and builds
    builds.clear()
    x = torch.ones(300, width, requires_grad=True)
    gsb.spmm(graph, x).sum().backward()
    assert builds == [] and x.grad[0, 0] == graph.transpose().in_degrees[0]


def test_a_recorded_plan_runs(plans, serial_gpu):
    """Small graphs go in one launch by the rules, and in two where that was the fastest."""
    graph = skewed()
    problem = problem_of(graph, "sum:column", 6, torch.float32)
    buckets, parts = BucketPlan(ARCH, 4), TeamPartPlan(TeamPlan(ARCH), 16)
    for plan, launches in ((rule_plan(problem), 1), (buckets, 2), (parts, 2)):
        other = skewed()
        database_of(CPU).add(problem, structure_fingerprint(graph), {plan: 1e-6})
        serial_gpu.clear()
        found = gsb.spmm(other, torch.ones(300, 6))
        assert serial_gpu == ["aggregate"] * launches and torch.equal(found[:, 0], graph.in_degrees.float())


@pytest.mark.usefixtures("plans", "serial_gpu", "rules_of_large_graphs")
@pytest.mark.parametrize(
    "kind, width, long", [("sum", 2, False), ("sum", 12, False), ("max", 40, True), ("dot", 5, False)]
)
def test_every_candidate_computes_the_same(kind, width, long):
    graph = skewed()
    if long:  # rows that are loaded in stretches
        graph = gsb.Graph.from_coo(torch.arange(2400) // 40, torch.arange(2400) * 7 % 300, (60, 300))
    task = Task(kind, "forward", graph, width, torch.float64)
    problem = problem_of_task(task)
    found = trials(problem)
    assert found[0] == rule_plan(problem) and len(set(found)) == len(found) and 2 <= len(found) <= 8
    assert not long or {TeamPlan(ARCH, True), TeamPlan(ARCH), TeamPlan(ARCH, True, 16)} < set(found)
    run, operands = task.runner(), [random_tensor(*x, graph.device) for x in task.operands]
    row = torch.repeat_interleave(torch.arange(graph.shape[0]), graph.in_degrees.long())
    sources = operands[-1][graph.indices.long()]
    if kind == "dot":
        expected = torch.empty(graph.num_edges, 1, dtype=torch.float64)
        expected[graph.edge_numbers.long()] = (operands[0][row] * sources).sum(1, keepdim=True)
    else:
        expected = torch.zeros(graph.shape[0], width, dtype=torch.float64)
        expected.scatter_reduce_(
            0, row[:, None].expand_as(sources), sources, {"max": "amax"}.get(kind, kind), include_self=False
        )
    for plan in found:
        with planned(graph, task.kind, width, torch.float64, plan):
            torch.testing.assert_close(
                run(), expected, rtol=1e-12, atol=1e-12, msg=lambda text, plan=plan: f"{plan}: {text}"
            )


def test_blocks_that_lose_do_not_run(plans, serial_gpu, monkeypatch):
    monkeypatch.setattr(cuda_bsr, "LEAST_EDGES", 1)
    row, col = (torch.ones(16, 24).nonzero() + torch.tensor([3, 5])).T
    graphs = [gsb.Graph.from_coo(row, col, (40, 30)) for _ in range(2)]
    x = torch.ones(30, 8, dtype=torch.float16)
    text = " ".join(str(gsb.explain(graphs[0], "sum", 8, dtype="float16")).split())
    for part in (
        "plan: blocks on Tensor Cores, else features to lanes",
        "multiply blocks of 16 x 16 in the format BSR",
        "stores 1,024 elements, of which 37.5% are non-zeros: 2.7 for each non-zero, 8 at most",
        "would save 0.0%",
    ):
        assert part in text, part
    assert gsb.spmm(graphs[0], x)[3, 0] == 24 and any("tiles" in name for name in serial_gpu)
    favour(monkeypatch, lambda plan: not isinstance(plan, BlockPlan))
    report = gsb.precompile(graphs[1], 8, budget="60s", dtype="float16", progress=False)
    assert report.complete and not isinstance(report.rows[0].plan, BlockPlan) and report.rows[0].plans >= 2
    serial_gpu.clear()
    assert gsb.spmm(graphs[1], x)[3, 0] == 24 and serial_gpu == ["aggregate"]
    assert not any("DenseBlocks" in name_of(fact) for fact in graphs[1].facts)
    precise = gsb.explain(graphs[0], "sum", 8)
    assert "Not by blocks on Tensor Cores: they take ten bits" in str(precise)
    assert not isinstance(precise.plan, BlockPlan) and precise.problem.slots == 0


def test_the_format_of_measured_blocks_is_said(plans, serial_gpu, monkeypatch):
    monkeypatch.setattr(cuda_bsr, "LEAST_EDGES", 1)
    row, col = torch.ones(32, 24).nonzero().T
    graph = gsb.Graph.from_coo(row, col * 40, (32, 1000))
    found = gsb.explain(graph, "sum", 8, dtype="bfloat16").problem
    assert (found.slots, found.in_sr_bcrs, found.in_bsr) == (1024, 1024, 2 * 24 * 256)
    database_of(CPU).add(found, structure_fingerprint(graph), {BlockPlan(TeamPlan(ARCH)): 1e-6, TeamPlan(ARCH): 2e-6})
    text = " ".join(str(gsb.explain(graph, "sum", 8, dtype="bfloat16")).split())
    assert "source: measured It was the fastest" in text and "nothing was measured" not in text
    assert (
        "format SR-BCRS. It stores 1,024 elements, of which 75.0% are non-zeros" in text
        and "would store 16.0 for each" in text
    )


def test_explain_has_the_rules_and_both_times(plans, serial_gpu, rules_of_large_graphs):
    graph = skewed()
    explanation = gsb.explain(graph, "weighted_sum", 16)
    text = " ".join(str(explanation).split())
    for part in (
        "a GPU of serial",
        "plan: buckets of up to 16, edges in stretches",
        "source: rules",
        "longest row has 1,001 non-zeros",
        "a simple model, which chooses nothing",
        "* buckets of up to 16",
        "machine: a stand-in, serial, 1 multiprocessors",
        "500 GB a second (a guess)",
    ):
        assert part in text, part
    assert explanation.plan == plan_of(graph, "sum:column,edge", 16, torch.float32)
    assert {plan for plan, _, _ in explanation.candidates()} == set(candidates(explanation.problem))
    assert all(predicted > 0 and measured is None for _, predicted, measured in explanation.candidates())
    database_of(CPU).add(
        explanation.problem, structure_fingerprint(graph), {TeamPlan(ARCH): 5e-6, explanation.plan: 7e-6}
    )
    text = " ".join(str(gsb.explain(graph, "weighted_sum", 16)).split())
    for part in ("source: measured", "* features to lanes", "7.0", "The rules' plan (buckets"):
        assert part in text, part
    assert gsb.explain(graph, "weighted_sum", 16, backward=True).choice.source == "rules"


def test_a_candidate_that_fails_is_left_out(plans, graph, monkeypatch):
    first, second = TeamPlan("a"), TeamPlan("b")

    def failing(wanted):
        def timer(run, count):
            if plan_of(graph, "sum:column", 8, torch.float32) == wanted:
                raise BuildError("aggregate", "no")
            return 1e-3

        return timer

    monkeypatch.setattr(Task, "runner", lambda self: None)
    task = Task("sum", "forward", graph, 8, torch.float32)
    assert time_plans(task, [first, second], 1e9, timer=failing(second)) == {first: 1e-3}
    with pytest.raises(BuildError):
        time_plans(task, [first, second], 1e9, timer=failing(first))


def test_events_take_the_time_of_a_gpu(monkeypatch):
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("event")

        def synchronize(self):
            log.append("wait")

        def elapsed_time(self, end):
            return 6.0  # milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda device: torch.no_grad())
    assert timers.timer_of(torch.device("cuda:1"))(lambda: log.append("call"), 3) == pytest.approx(2e-3)
    assert log == ["event", *["call"] * 3, "event", "wait"]


def test_bandwidths_are_measured_by_copies(plans, serial_gpu):
    taken = []

    def timer(run, count):
        run()
        taken.append(count)
        return 1e-3 if len(taken) <= 5 else 1e-6

    units = cuda_calibration.calibrate_gpu(CPU, timer)
    assert units["stream"] == units["far"] == pytest.approx(1e-3 / (2 * 8 * GPU.cache))
    assert units["launch"] == default_units(GPU)["launch"]
    assert units["near"] == pytest.approx(1e-6 / (2 * GPU.cache / 8)) and database_of(CPU).calibrated
    assert "(measured)" in str(gsb.explain(skewed(), features=8)) and not plans.units.keys() & {"launch"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_commands_say_so(tmp_path, capsys):
    np.savez(tmp_path / "g.npz", indptr=[0, 1], indices=[0])
    for command in ("tune", "explain"):
        assert cli.main([command, str(tmp_path / "g.npz"), "--device", "cuda"]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"gsb {command}: --device cuda: there is no GPU here") and "gsb doctor" in error
