"""Which plan is chosen, from what, and what choosing costs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core.plans import plan_of, problem_of, structure_fingerprint
from gnn_sparse_backend.planner import calibrate, machine
from gnn_sparse_backend.planner.candidates import candidates, rule_plan, trials
from gnn_sparse_backend.planner.choose import choose, plan_for
from gnn_sparse_backend.planner.cost import DEFAULT_UNITS, compulsory_bytes, predict, predicted_seconds
from gnn_sparse_backend.planner.cpu.rows import RowPlan, ScatteredPlan
from gnn_sparse_backend.planner.cpu.slices import SlicePlan
from gnn_sparse_backend.planner.problem import Problem, longest_row, reach_of, typical_row
from tests.counting import Work, calls_of

SMALL = Problem("sum:column", 900, 800, 6000, 64, "float32", 2, 800)
LARGE = Problem("sum:column", 200_000, 200_000, 2_000_000, 32, "float32", 2, 200_000)
NARROW = Problem("sum:column", 20_000, 20_000, 2_000_000, 1, "float32", 2, 20_000)
SHORT = Problem("sum:column", 100_000, 100_000, 300_000, 1, "float32", 2, 100_000)
DENSE = Problem("sum:column", 400_000, 400_000, 100_000_000, 64, "float32", 2, 400_000)
EVERY = (
    SMALL,
    LARGE,
    NARROW,
    SHORT,
    DENSE,
    Problem("max:column,edge", 1, 1, 1, 1, "float16", 1, 1),
    Problem("sum:edge", 10, 0, 0, 8, "float32", 4, 0),
    replace(LARGE, longest=500_000),
)


@pytest.mark.parametrize("problem", EVERY)
def test_candidates_begin_with_the_rules_and_do_not_repeat(problem):
    plans = trials(problem)
    assert plans[0] == rule_plan(problem)
    assert len(set(plans)) == len(plans) <= 24 and set(candidates(problem)) <= set(plans)
    if problem.threads == 1:
        assert all(plan.groups == 1 for plan in plans)


def kinds(plans):
    return {"scattered" if isinstance(plan, ScatteredPlan) else plan.in_lanes for plan in plans}


def width(plan):
    return plan.width if isinstance(plan, SlicePlan) else 0


def test_what_is_worth_trying():
    assert kinds(trials(NARROW)) == {False, True}
    assert kinds(trials(SHORT)) == {"scattered", False, True}
    assert kinds(trials(LARGE)) == {False}
    for problem in (NARROW, SHORT, LARGE):  # the model does not tell them apart
        assert kinds(candidates(problem)) == kinds([rule_plan(problem)])
    assert kinds(trials(replace(SHORT, features=3))) == {"scattered", False}
    assert kinds(trials(replace(NARROW, kind="max:column", features=2))) == {False}
    assert {plan.prefetch for plan in trials(LARGE)} == {0, 8, 16, 32}
    assert {plan.prefetch for plan in trials(SMALL)} == {0}
    assert max(plan.partitions for plan in candidates(DENSE)) > 1
    assert {plan.partitions for plan in candidates(LARGE)} == {1}


def test_partitions_of_the_rules_are_not_left_to_the_model(monkeypatch):
    monkeypatch.setattr(machine, "last_level_cache_bytes", lambda: 32 << 20)
    monkeypatch.setattr(machine, "private_cache_bytes", lambda: 512 << 10)
    assert rule_plan(DENSE).partitions == 32
    assert {plan.partitions for plan in candidates(DENSE)} == {32}
    assert {plan.partitions for plan in trials(DENSE)} == {1, 16, 32, 64}
    short = replace(
        DENSE, nnz=20 * DENSE.rows
    )  # in pieces as short as the loop around them: there the model may be right
    assert {plan.partitions for plan in candidates(short)} == {1, 2}


def test_slices_of_rows_gathered_often_are_predicted_and_others_measured(monkeypatch):
    monkeypatch.setattr(machine, "last_level_cache_bytes", lambda: 32 << 20)
    wide = Problem("sum:column", 120_000, 120_000, 1_500_000, 256, "float32", 2, 120_000)
    assert set(map(width, candidates(wide))) == {32} and set(map(width, trials(wide))) == {0, 32}
    sliced, packing = SlicePlan(32, 16, width=32).counts(wide), 2 * wide.table_bytes / 2
    one = RowPlan(32, 16).counts(replace(wide, features=32))
    assert sliced["stream"] == pytest.approx(8 * one["stream"] + packing) and sliced["edge"] == 8 * one["edge"]
    assert set(map(width, trials(replace(wide, reach=9_000)))) == {0, 32}
    # of rows that are gathered less often the model, which knows no hubs, has no say: they are measured
    seldom = replace(wide, nnz=900_000)
    assert set(map(width, candidates(seldom))) == {0} and set(map(width, trials(seldom))) == {0, 32}


@pytest.mark.parametrize("problem", EVERY)
def test_costs_are_positive_and_their_terms_add_up(problem):
    for plan in candidates(problem):
        cost = predict(problem, plan, DEFAULT_UNITS)
        assert cost.seconds > 0 and all(seconds > 0 for seconds in cost.terms.values())
        assert cost.seconds == pytest.approx(predicted_seconds(problem, plan, DEFAULT_UNITS))
        assert set(plan.counts(problem)) == set(DEFAULT_UNITS)


def test_costs_grow_with_the_problem():
    for field in ("rows", "nnz", "features"):
        larger = replace(LARGE, **{field: 4 * getattr(LARGE, field)})
        assert predicted_seconds(larger, RowPlan(32), DEFAULT_UNITS) > 1.2 * predicted_seconds(
            LARGE, RowPlan(32), DEFAULT_UNITS
        )
    near = replace(LARGE, reach=500)
    assert predicted_seconds(near, RowPlan(32), DEFAULT_UNITS) < predicted_seconds(LARGE, RowPlan(32), DEFAULT_UNITS)
    assert predicted_seconds(LARGE, RowPlan(32), DEFAULT_UNITS) < predicted_seconds(LARGE, RowPlan(1), DEFAULT_UNITS)


def test_compulsory_bytes_by_hand():
    # every column needed, and twice as many edges would need no more
    dense = Problem("sum:column,edge", 10, 5, 5000, 16, "float32", 1, 5)
    assert compulsory_bytes(dense) == pytest.approx(4 * (11 + 5000) + 64 * (5 + 10) + 4 * 5000)


@pytest.mark.parametrize("spread", [50, 1000, 20_000])
def test_reach_of_uniform_columns(spread):
    rng = np.random.default_rng(0)
    indices = (np.arange(200_000) // 5000 * 7 + rng.integers(0, spread, 200_000)).astype(np.int32)
    assert reach_of(indices, len(indices), 10**6) == pytest.approx(spread, rel=0.5)


def test_reach_never_exceeds_the_columns():
    assert reach_of(np.arange(5000, dtype=np.int32), 500, 5000) == 5000
    assert reach_of(np.zeros(10, np.int32), 4, 4) == 4
    assert reach_of(np.zeros(0, np.int64), 0, 0) == 0
    assert reach_of(np.zeros(5000, np.int32), 500, 5000) <= 2


def test_reach_of_long_rows_is_not_guessed_from_their_hubs():
    """Rows of 300 columns, 50 of which are in every row: a window of 512 meets them twice, whatever the others are."""
    rng = np.random.default_rng(0)
    rows = [np.concatenate([np.arange(50), rng.choice(10**6, 250, replace=False)]) for _ in range(100)]
    indices = np.concatenate(rows).astype(np.int32)
    assert reach_of(indices, 100, 10**6) == 10**6
    assert reach_of(indices, 10**4, 10**6) < 10**4  # were they the non-zeros of short rows


@pytest.mark.parametrize("at", [0, 7, 99])
def test_longest_row_finds_any_row_that_matters(at):
    degrees = np.full(100, 100)
    degrees[at] = 1000
    indptr = np.concatenate(([0], degrees.cumsum())).astype(np.int32)
    assert longest_row(indptr, 64) == 1000
    assert longest_row(np.zeros(5, np.int32), 64) == 0
    assert longest_row(np.array([0, 3], np.int64), 64) == 3


def test_the_typical_row_is_that_of_a_non_zero():
    def typical(degrees, dtype=np.int32):
        return typical_row(np.concatenate(([0], np.cumsum(degrees))).astype(dtype))

    assert typical(np.full(1000, 7)) == typical(np.full(1000, 7), np.int64) == 7
    # three quarters of the non-zeros in a tenth of the rows, wherever these are, and no other way round
    for seed in range(5):
        degrees = np.random.default_rng(seed).permutation(np.concatenate((np.full(9000, 1), np.full(1000, 27))))
        assert typical(degrees) == 27
        assert typical(np.where(degrees == 27, 4, 1)) == 1
    assert typical([0, 0, 5, 0]) == 5 and typical([0, 0]) == 0 and typical([1]) == 1
    # a Poisson graph's is its mean, or one more
    assert abs(typical(np.random.default_rng(0).poisson(20, 10_000)) - 21) <= 2


def test_lanes_follow_the_typical_row(plans, two_threads):
    """Of two graphs with rows of seven non-zeros on average, the one whose non-zeros are mostly in long rows."""
    rng = np.random.default_rng(0)
    skewed = rng.permutation(np.concatenate((np.full(9000, 1), np.full(1000, 61))))
    for degrees, lanes in ((skewed, True), (np.full(10_000, 7), False)):
        indptr = np.concatenate(([0], degrees.cumsum()))
        indices = rng.integers(0, 10_000, indptr[-1])
        graph = gsb.Graph.from_csr(torch.from_numpy(indptr), torch.from_numpy(indices), (10_000, 10_000), trusted=True)
        for kind in ("sum:column", "max:column"):
            assert plan_of(graph, kind, 4, torch.float32).in_lanes == lanes
        assert problem_of(graph, "sum:column", 16, torch.float32).typical == 0, "wide rows have no lanes: nobody looks"


def test_measured_before_model_before_rules(plans):
    choice = choose(SMALL, lambda: "f")
    assert choice.source in ("model", "rules") and choice.plan in candidates(SMALL)
    odd = RowPlan(7, balance="rows")
    plans.add(SMALL, "f", {odd: 1e-6, RowPlan(1): 2e-6})
    choice = choose(SMALL, lambda: "f")
    assert (choice.plan, choice.source) == (odd, "measured") and plan_for(SMALL, lambda: "f") == odd
    assert "2 plans" in choice.reasons[0]
    assert choose(SMALL, lambda: "g").source != "measured"


def test_the_model_overrules_the_rules_where_it_expects_much_less(plans):
    problem = replace(SMALL, nnz=2000)
    assert rule_plan(problem).groups > 1
    plans.set_units({**DEFAULT_UNITS, "start": 1.0})  # starting threads takes a second
    choice = choose(problem, lambda: "f")
    assert choice.source == "model" and choice.plan.groups == 1
    assert "start" in " ".join(choice.reasons)
    plans.set_units({**DEFAULT_UNITS, "start": 0.0, "group": 0.0})
    assert choose(problem, lambda: "f").plan.groups > 1


def test_near_the_limit_the_model_has_one_thread_and_a_group_for_each(plans):
    narrow = Problem("max:column", 3_327, 3_327, 9_104, 1, "float32", 2, 3_327)
    assert {plan.groups for plan in candidates(narrow)} == {1, 2, rule_plan(narrow).groups} and rule_plan(
        narrow
    ).groups > 2
    tiny, large = replace(narrow, rows=300, nnz=900), replace(narrow, nnz=90_000)
    assert {plan.groups for plan in candidates(tiny)} == {1, 2}
    assert {plan.groups for plan in candidates(large)} == {rule_plan(large).groups}
    assert {plan.groups for plan in candidates(narrow.on(1))} == {1}
    # on a busy machine groups seemed to cost more than they do: still both threads
    plans.set_units({**DEFAULT_UNITS, "start": 2e-6, "group": 1e-6, "row": 4.5e-9})
    assert choose(narrow, lambda: "f").plan.groups == 2


@pytest.mark.parametrize("problem", EVERY)
def test_the_order_of_additions_does_not_depend_on_threads(problem, plans):
    chosen = [plan_for(problem.on(threads), lambda: "f") for threads in (1, 2, 5, 64)]
    assert len({replace(plan, groups=1) for plan in chosen}) == 1


def test_choosing_is_cheap_and_runs_nothing(plans, two_threads, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(
        "gnn_sparse_backend.ops.core.arguments.structure_arguments", None
    )  # which every call of a kernel needs
    monkeypatch.setattr("gnn_sparse_backend.structures.facts.fingerprint", None)
    calls = []
    for nodes in range(100_000, 100_008):  # mini-batches: never the same size
        indices = torch.from_numpy(rng.integers(0, nodes, 400_000).astype(np.int32))
        indptr = torch.arange(0, 400_001, 4, dtype=torch.int32)
        graph = gsb.Graph.from_csr(indptr, indices, (100_000, nodes), trusted=True)
        with Work() as work:
            calls.append(calls_of(lambda graph=graph: plan_of(graph, "sum:column", 128, torch.float32)))
        assert work.calls < 10 and work.elements < 2 * 400_000  # the sum reads 51 million
    # beside what the first one imports: 90 to 190, and those of `Work`
    assert min(calls) < 300, calls


def test_a_graph_asks_once_and_any_edge_order_has_its_plan(plans, two_threads):
    indptr, indices = torch.tensor([0, 1, 3, 4]), torch.tensor([2, 0, 1, 1])
    graph = gsb.Graph.from_csr(indptr, indices, (3, 3))
    numbered = gsb.Graph.from_csr(indptr, indices, (3, 3), edge_ids=torch.tensor([3, 1, 2, 0]))
    other = gsb.Graph.from_csr(indptr, indices.flip(0), (3, 3))
    assert structure_fingerprint(numbered) == structure_fingerprint(graph) != structure_fingerprint(other)
    plan = plan_of(graph, "sum:column", 16, torch.float32)
    assert plan_of(graph, "sum:column", 16, torch.float32) is plan
    plans.add(problem_of(graph, "sum:column", 16, torch.float32), structure_fingerprint(graph), {RowPlan(3): 1e-6})
    assert plan_of(graph, "sum:column", 16, torch.float32) is plan, "kept with the graph"
    assert plan_of(numbered, "sum:column", 16, torch.float32) == RowPlan(3)


def test_calibration_recovers_the_constants_it_was_given():
    units = {name: value * factor for (name, value), factor in zip(DEFAULT_UNITS.items(), np.linspace(0.6, 2.2, 20))}
    measured = [(probe, predicted_seconds(probe.problem, probe.plan, units)) for probe in calibrate.probes(2)]
    found = calibrate.fit(calibrate.undisturbed(measured))
    assert calibrate.errors(measured, found) == pytest.approx([1.0] * len(measured), abs=0.25)
    for name in ("vector", "row", "stream"):
        assert found[name] == pytest.approx(units[name], rel=0.6), name


def test_calibration_leaves_out_what_waited_for_a_core():
    measured = [
        (probe, predicted_seconds(probe.problem, probe.plan, DEFAULT_UNITS) + 0.016 * (probe.plan.groups > 1))
        for probe in calibrate.probes(2)
    ]
    kept = calibrate.undisturbed(measured)
    assert {probe.plan.groups for probe, _ in kept} == {1}
    with pytest.raises(ValueError, match="0.0 s"):
        calibrate.fit([(measured[0][0], 0.0)])
