"""gsb.precompile: what it measures, what it keeps, and that a budget or Ctrl-C leaves the best so far."""

import math

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core.plans import plan_of, problem_of, structure_fingerprint
from gnn_sparse_backend.ops.message.executables.one_pass import ROWS_BY_LENGTH
from gnn_sparse_backend.planner.candidates import trials
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.planner.database import PlanDatabase
from gnn_sparse_backend.runtime.timers import on_clock
from gnn_sparse_backend.tuning import precompile as precompile_module
from gnn_sparse_backend.tuning.precompile import seconds_of
from gnn_sparse_backend.tuning.tune import FEWEST_ROUNDS, HOPELESS, time_plans
from gnn_sparse_backend.tuning.tuning_tasks import OPS, Task, tasks_of

pytestmark = pytest.mark.usefixtures("two_threads")


class Clock:
    """Seconds that pass only when a plan runs: each takes what ``cost`` says."""

    def __init__(self, cost):
        self.now, self.cost = 0.0, cost

    def __call__(self):
        return self.now


def fake_task(monkeypatch, graph, clock):
    task = Task("sum", "forward", graph, 64, torch.float32)

    def run():
        clock.now += clock.cost[plan_of(graph, task.kind, 64, torch.float32)]

    monkeypatch.setattr(Task, "runner", lambda self: run)
    return task


def test_the_next_call_and_the_next_process_run_by_what_was_fastest(plans, graph):
    x = torch.randn(800, 32)
    expected = gsb.spmm(graph, x)
    report = gsb.precompile(graph, 32, ("sum", "dot"), "5s", progress=False)
    assert report.complete and [row.op for row in report.rows] == ["sum", "sum backward", "dot"]
    forward, backward, dot = report.rows
    assert forward.state == backward.state == dot.state == "measured"
    assert dot.plans == len(trials(problem_of(graph, "map:column,row", 32, torch.float32)))
    assert forward.seconds <= forward.rules and forward.plans == len(
        trials(problem_of(graph, "sum:column", 32, torch.float32))
    )
    assert plan_of(graph, "sum:column", 32, torch.float32) == forward.plan
    torch.testing.assert_close(gsb.spmm(graph, x), expected)
    later = PlanDatabase(plans.path)
    problem = problem_of(graph.transpose(), "sum:column", 32, torch.float32)
    assert later.find(problem, lambda: structure_fingerprint(graph.transpose())).best == backward.plan


def test_rows_are_in_order_at_once(plans):
    """As they are from the eighth call on, where nothing was precompiled."""
    rng = np.random.default_rng(0)
    graph = gsb.Graph.from_coo(rng.integers(0, 5000, 40_000), rng.integers(0, 3000, 40_000), (5000, 3000))
    gsb.precompile(graph, features=4, ops=("sum",), budget="2s", backward=False, progress=False)
    gsb.spmm(graph, torch.ones(3000, 4), reduce="max")
    assert ROWS_BY_LENGTH in graph.facts


def test_what_is_known_is_not_measured_again(plans, graph):
    first = gsb.precompile(graph, 32, budget="5s", progress=False)
    second = gsb.precompile(graph, 32, budget="5s", progress=False)
    assert [row.state for row in second.rows] == ["known", "known"]
    assert [row.plan for row in second.rows] == [row.plan for row in first.rows]
    assert (
        gsb.precompile(graph, 32, budget="5s", backward=False, again=True, progress=False).rows[0].state == "measured"
    )


def test_the_fastest_plan_wins(graph, monkeypatch, plans):
    plans_ = [RowPlan(32), RowPlan(1), RowPlan(32, 8)]
    clock = Clock(dict(zip(plans_, (3e-3, 1e-3, 2e-3))))
    seconds = time_plans(fake_task(monkeypatch, graph, clock), plans_, 1e9, clock)
    assert seconds == pytest.approx(clock.cost)


@pytest.mark.parametrize("hopeless, calls", [(HOPELESS, FEWEST_ROUNDS + 1), (math.inf, 20)])
def test_a_slow_plan_has_fewer_turns_unless_it_is_asked_to_stay(graph, monkeypatch, plans, hopeless, calls):
    plans_ = [RowPlan(32), RowPlan(1), RowPlan(32, 8)]
    clock = Clock(dict(zip(plans_, (2e-3, 1e-3, 1.1e-3))))
    task, turns = fake_task(monkeypatch, graph, clock), []

    def timer(run, count):
        turns.append(plan_of(graph, task.kind, 64, torch.float32))
        return on_clock(clock)(run, count)

    time_plans(task, plans_, 1e9, clock, rounds=20, timer=timer, hopeless=hopeless)
    assert [turns.count(plan) - 2 for plan in plans_] == [calls, 20, 20], "beside two calls before the rounds"


@pytest.mark.short(4)
@pytest.mark.parametrize("deadline, timed", [(0.0, 1), (5e-3, 1), (7e-3, 2), (1.0, 3)])
def test_a_budget_ends_with_the_best_so_far(graph, monkeypatch, plans, deadline, timed):
    plans_ = [RowPlan(32), RowPlan(1), RowPlan(32, 8)]
    clock = Clock(dict(zip(plans_, (3e-3, 1e-3, 2e-3))))
    seconds = time_plans(fake_task(monkeypatch, graph, clock), plans_, deadline, clock)
    assert list(seconds) == plans_[:timed]
    assert clock.now <= deadline + 12e-3, "two calls of a plan that was started, and a round"


def test_no_time_at_all(plans, graph):
    report = gsb.precompile(graph, 32, budget=0, progress=False)
    assert [row.state for row in report.rows] == ["not reached", "not reached"] and not report.complete
    assert "not reached" in str(report) and plans.records() == []


def test_ctrl_c_keeps_what_was_measured(plans, graph, monkeypatch):
    measure, calls = precompile_module.time_plans, []

    def interrupted(task, *rest):
        calls.append(task)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(task, *rest)

    monkeypatch.setattr(precompile_module, "time_plans", interrupted)
    report = gsb.precompile(graph, (16, 32), budget="5s", backward=False, progress=False)
    assert report.interrupted and not report.complete
    assert [row.state for row in report.rows] == ["measured", "not reached"]
    assert [record.problem.features for record in PlanDatabase(plans.path).records()] == [16]
    assert "interrupted" in str(report)


def test_ctrl_c_while_compiling(plans, graph, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(precompile_module, "compile_plans", interrupted)
    report = gsb.precompile(graph, 32, budget="5s", progress=False)
    assert report.interrupted and {row.state for row in report.rows} == {"not reached"}


@pytest.mark.parametrize("op", OPS)
def test_every_operator_runs_what_training_runs(op, plans, graph, monkeypatch):
    """The plans that are measured are those that a training step then looks up."""
    looked_up = set()

    def spy(g, kind, features, dtype, *more):
        looked_up.add((g is graph, kind, features, dtype))
        return plan_of(g, kind, features, dtype, *more)

    monkeypatch.setattr("gnn_sparse_backend.ops.message.calls.plan_of", spy)
    tasks = tasks_of(graph, (op,), (16,), torch.float32, True)
    for task in tasks:
        assert torch.isfinite(torch.as_tensor(task.runner()())).any()
    looked_up.clear()
    x = torch.randn(800, 16, requires_grad=True)
    weight = torch.rand(graph.num_edges)
    if op == "dot":
        gsb.sddmm(graph, torch.randn(900, 16), x).sum()
    elif op.startswith("weighted_"):
        gsb.spmm(graph, x, weight, op.removeprefix("weighted_")).sum().backward()
    else:
        gsb.spmm(graph, x, reduce=op).sum().backward()
    wanted = {(task.graph is graph, task.kind, 16, torch.float32) for task in tasks}
    assert wanted <= looked_up


def test_a_graph_without_edges(plans):
    empty = gsb.Graph.from_coo(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), (3, 3))
    report = gsb.precompile(empty, 32, budget="5s", progress=False)
    assert report.rows == [] and "no graph" in str(report)


@pytest.mark.parametrize(
    "text, seconds", [("30s", 30), ("500ms", 0.5), (" 2 m ", 120), ("1h", 3600), (3, 3), ("1.5", 1.5)]
)
def test_budgets(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"budget": "soon"}, "'soon'.*30s"),
        ({"budget": -1}, "-1"),
        ({"budget": float("nan")}, "nan"),
        ({"ops": "som"}, "'som'.*sum"),
        ({"features": 0}, "0"),
        ({"features": (16, 1.5)}, "1.5"),
        ({"features": ()}, "no width"),
        ({"dtype": "int8"}, "int8.*float32"),
    ],
)
def test_bad_arguments_are_quoted(arguments, message, graph, plans):
    with pytest.raises(ValueError, match=message):
        gsb.precompile(graph, **{"progress": False, **arguments})


def test_random_generators_are_left_alone(plans, graph):
    torch.manual_seed(0)
    np.random.seed(0)
    expected = torch.rand(3), np.random.rand(3)
    torch.manual_seed(0)
    np.random.seed(0)
    gsb.precompile(graph, 16, budget="2s", backward=False, progress=False)
    assert torch.equal(torch.rand(3), expected[0]) and np.array_equal(np.random.rand(3), expected[1])
