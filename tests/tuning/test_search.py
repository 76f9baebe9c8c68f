"""A search of plans: what it measures, what it keeps, and that what it finds computes the same."""

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen import BuildError
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.planner.database import PlanDatabase
from gnn_sparse_backend.planner.decisions import Decision, decisions
from gnn_sparse_backend.planner.problem import Problem
from gnn_sparse_backend.tuning import precompile as precompile_module
from gnn_sparse_backend.tuning import search as search_module
from gnn_sparse_backend.tuning.search import LEADING, of_now, promising, search

pytestmark = pytest.mark.usefixtures("two_threads")

PROBLEM = Problem("sum:column", 10, 20, 30, 8, "float32", 2)
PLANS = [RowPlan(groups) for groups in range(1, 13)]


class Fake:
    """A decision whose plans take known seconds of a clock of its own."""

    def __init__(self, costs, predicted=None, structure="0" * 32):
        self.costs, self.predicted = costs, predicted or dict.fromkeys(costs, 1e-3)
        self.structure, self.now, self.ran = structure, 0.0, []

    def run(self, plan):
        self.ran.append(plan)
        if isinstance(self.costs[plan], Exception) or self.costs[plan] is KeyboardInterrupt:
            raise self.costs[plan]
        self.now += self.costs[plan]

    def search(self, known, budget, **more):
        rule = next(iter(self.predicted))
        decision = Decision("sum", rule, PROBLEM, lambda: self.structure, lambda: self.predicted, self.run)
        return search(decision, known, self.now + budget, lambda: self.now, **more)


def costs_with(best):
    return {plan: 1e-3 * (1.0 if plan == best else 1.2 + 0.05 * plan.groups) for plan in PLANS}


@pytest.mark.short(3)
@pytest.mark.parametrize("best", [PLANS[0], PLANS[5], PLANS[-1]])
def test_the_fastest_is_found_kept_and_found_again(plans, best):
    fake = Fake(costs_with(best))
    found = fake.search(plans, 1e9)
    assert (found.plan, found.state, found.rule) == (best, "measured", PLANS[0])
    later, again = PlanDatabase(plans.path), Fake(costs_with(best))
    assert later.find(PROBLEM, lambda: "0" * 32).best == best
    known = again.search(later, 1e9)
    assert (known.plan, known.state, again.ran) == (best, "known", [])


def test_a_structure_of_other_content_does_not_get_it(plans):
    Fake(costs_with(PLANS[5])).search(plans, 1e9)
    assert plans.find(PROBLEM, lambda: "1" * 32) is None
    other = Fake(costs_with(PLANS[2]), structure="1" * 32)
    assert other.search(plans, 1e9).plan == PLANS[2]
    assert plans.find(PROBLEM, lambda: "0" * 32).best == PLANS[5]


def test_without_a_budget_nothing_runs(plans):
    fake = Fake(costs_with(PLANS[5]))
    found = fake.search(plans, 0.0)
    assert (found.state, found.plan, found.record, fake.ran) == ("predicted", PLANS[0], None, [])
    assert plans.records() == []


def test_the_cost_model_says_what_is_measured(plans):
    predicted = {plan: 1e-3 * plan.groups for plan in reversed(PLANS)}
    fake = Fake(costs_with(PLANS[5]), predicted)
    found = fake.search(plans, 1e9)
    assert set(fake.ran) == {PLANS[-1], *PLANS[:3]}, "the rules' plan, and those predicted within three times the least"
    assert list(dict.fromkeys(fake.ran))[:2] == [PLANS[-1], PLANS[0]], "the rules' first, then the least predicted"
    assert found.plan == PLANS[0]


def test_about_equal_predictions_are_in_the_order_given():
    predicted = {PLANS[0]: 1.0, PLANS[1]: 0.995, PLANS[2]: 0.99, PLANS[3]: 0.5}
    assert promising(predicted) == [PLANS[0], PLANS[3], PLANS[1], PLANS[2]]


@pytest.mark.short(3)
@pytest.mark.parametrize("budget", [2e-3, 20e-3, 100e-3])
def test_a_budget_is_respected(plans, budget):
    fake = Fake(costs_with(PLANS[5]))
    found = fake.search(plans, budget)
    # the rules' plan runs once, and has its two first samples, whatever the budget; what runs at its end is finished,
    # in both threads
    assert fake.now <= budget + 5 * max(fake.costs.values())
    assert found.record.seconds and (found.state == "measured" or found.state.startswith("measured "))


def test_a_search_that_was_cut_short_goes_on(plans):
    fake, reached = Fake(costs_with(PLANS[-1])), 0
    for _ in range(12):
        found = fake.search(plans, 30e-3)
        assert len(found.record.seconds) >= reached
        reached = len(found.record.seconds)
    assert (found.state, found.plan) == ("known", PLANS[-1])


def test_what_was_measured_at_another_hour_is_compared_by_what_was_measured_twice():
    a, b, c, d = PLANS[:4]
    assert of_now({a: 1.0, b: 2.0, c: 3.0}, {a: 2.0, b: 4.0, d: 5.0}) == {a: 2.0, b: 4.0, c: 6.0, d: 5.0}
    assert of_now({}, {a: 1.0}) == {a: 1.0}


def test_the_best_of_before_are_measured_again_beside_the_rest(plans):
    plans.add(PROBLEM, "0" * 32, {plan: 1e-3 * plan.groups for plan in PLANS[:8]})
    fake = Fake(costs_with(PLANS[9]))
    found = fake.search(plans, 1e9)
    assert set(fake.ran) == {*PLANS[:LEADING], *PLANS[8:]} and found.plan == PLANS[9]
    assert len(found.record.seconds) == len(PLANS)


def test_an_interrupted_search_leaves_the_database_as_it_was(plans):
    Fake(costs_with(PLANS[5])).search(plans, 1e9)
    before = plans.path.read_bytes()
    fake = Fake({**costs_with(PLANS[5]), PLANS[7]: KeyboardInterrupt})
    with pytest.raises(KeyboardInterrupt):
        fake.search(plans, 1e9, again=True)
    assert plans.path.read_bytes() == before and plans.verify() == []


def test_a_plan_that_does_not_compile_is_left_out(plans):
    fake = Fake({**costs_with(PLANS[5]), PLANS[7]: BuildError("kernel", "no")})
    found = fake.search(plans, 1e9)
    assert (found.plan, found.state) == (PLANS[5], f"measured {len(PLANS) - 1} of {len(PLANS)}")
    with pytest.raises(BuildError):
        Fake({**costs_with(PLANS[5]), PLANS[0]: BuildError("kernel", "no")}, structure="2" * 32).search(plans, 1e9)


def pairs(rng, size, count):
    return rng.integers(0, size[0], count), rng.integers(0, size[1], count)


def graph_of(rng):
    """Unsorted, with duplicates and rows without edges."""
    return gsb.Graph.from_coo(*pairs(rng, (37, 29), 150), (40, 29))


def relations_of(rng):
    return gsb.RelGraph.from_triples(*pairs(rng, (29, 37), 150), rng.integers(0, 3, 150), (40, 29), 4)


def map_of(rng):
    each = [(rng.permutation(23)[:9], rng.permutation(31)[:9]) for _ in range(5)]
    inputs, outputs = (np.concatenate(ends) for ends in zip(*each))
    return gsb.KernelMap.from_pairs(inputs, outputs, np.arange(6) * 9, (31, 23))


def ends_of(graph):
    """(rows, columns) of the edges in the user's order."""
    rows = torch.repeat_interleave(torch.arange(graph.shape[0]), graph.indptr.diff())
    order = torch.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids.long().argsort()
    return rows[order], graph.indices.long()[order]


def spmm(graph, x, w):
    rows, columns = ends_of(graph)
    return x.new_zeros(graph.shape[0], x.shape[1]).index_add(0, rows, w[:, None] * x[columns])


def sddmm(graph, a, b):
    rows, columns = ends_of(graph)
    return (a[rows] * b[columns]).sum(1, keepdim=True)


def attention(graph, left, right, x):
    rows, columns = ends_of(graph)
    scores = torch.nn.functional.leaky_relu(left[rows] + right[columns], 0.2)
    weights = scores.exp()
    total = x.new_zeros(graph.shape[0], weights.shape[1]).index_add(0, rows, weights)
    return x.new_zeros(graph.shape[0], *x.shape[1:]).index_add(0, rows, (weights / total[rows])[..., None] * x[columns])


def rgms(rel, x, w):
    messages = torch.einsum("ei,eio->eo", x[rel.source.long()], w[rel.relation.long()])
    return x.new_zeros(rel.shape[0], w.shape[2]).index_add(0, rel.destination.long(), messages)


def sparse_conv(kernel_map, x, w):
    offset = torch.repeat_interleave(torch.arange(kernel_map.num_offsets), kernel_map.indptr.diff())
    messages = torch.einsum("pi,pio->po", x[kernel_map.inputs.long()], w[offset])
    return x.new_zeros(kernel_map.shape[0], w.shape[2]).index_add(0, kernel_map.outputs.long(), messages)


CASES = {
    "spmm": ("weighted_sum", graph_of, 5, gsb.spmm, spmm),
    "sddmm": ("dot", graph_of, 7, gsb.sddmm, sddmm),
    "attention": ("gat_attention", graph_of, (2, 3), gsb.gat_attention, attention),
    "rgms": ("rgms", relations_of, (6, 3), gsb.rgms, rgms),
    "sparse_conv": (
        "sparse_conv",
        map_of,
        (4, 6),
        lambda kernel_map, x, w: gsb.sparse_conv(x, w, kernel_map),
        sparse_conv,
    ),
}


def results(call, structure, operands, dtype):
    """The result and the gradients to all operands."""
    leaves = [x.to(dtype).requires_grad_() for x in operands]
    out = call(structure, *leaves)
    flowing = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [out.detach(), *torch.autograd.grad(out, leaves, flowing.to(out.dtype))]


def searched(monkeypatch, plans, name, which, dtype="float32"):
    """Search an operator where the plan at a place among the candidates of each kernel is the fastest, and the results
    before and after beside the oracle's.
    """
    op, make, width, call, oracle = CASES[name]
    structure = make(np.random.default_rng(0))
    shapes = search_shapes(op, structure, width)
    operands = [torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) for shape in shapes]
    wanted = {}

    def two(predicted):
        listed = list(predicted)
        return list(dict.fromkeys((listed[0], listed[which % len(listed)])))

    def chosen(arms, sample, deadline, clock):
        for arm in arms:
            sample(arm, 1)
        wanted[arms[-1]] = None
        return {arm: float(len(arms) - at) for at, arm in enumerate(arms)}

    monkeypatch.setattr(search_module, "promising", two)
    monkeypatch.setattr(search_module, "halved", chosen)
    report = gsb.precompile(structure, {op: [width]}, budget="1h", dtype=dtype, progress=False, search=True)
    assert {row.state for row in report.rows} == {"measured"} and report.complete
    assert {row.plan for row in report.rows} == set(wanted)
    with torch.autograd.set_multithreading_enabled(False), decisions() as told:
        found = results(call, structure, operands, getattr(torch, dtype))
    best = [plans.find(each.problem, each.fingerprint).best for each in told]
    assert told and [each.plan for each in told] == best, "operators run by what was found"
    return report, structure, found, results(oracle, structure, operands, torch.float64)


def search_shapes(op, structure, width):
    from gnn_sparse_backend.tuning.precompile_operators import operators_named

    (prepared,) = operators_named(op)
    return prepared.shapes(structure, width)


def check(found, expected, rtol):
    for got, wanted in zip(found, expected):
        torch.testing.assert_close(got.double(), wanted.view(got.shape), rtol=rtol, atol=rtol)


@pytest.mark.short(5)
@pytest.mark.parametrize("name", CASES)
def test_what_is_found_is_run_and_computes_the_same(name, plans, monkeypatch):
    report, structure, found, expected = searched(monkeypatch, plans, name, -1)
    assert len(report.rows) >= 2, "forward and backward"
    check(found, expected, 2e-5)
    assert len(PlanDatabase(plans.path).records()) == len(report.rows)
    op, _, width, *_ = CASES[name]
    explained = str(gsb.explain(structure, op, width))
    assert "measured, µs" in explained and str(report.rows[0].plan).split(",")[0] in explained
    again = gsb.precompile(structure, {CASES[name][0]: [CASES[name][2]]}, budget="1h", progress=False, search=True)
    assert {row.state for row in again.rows} == {"known"}
    assert {(row.op, row.plan) for row in again.rows} <= {(row.op, row.plan) for row in report.rows}


@pytest.mark.slow
@pytest.mark.parametrize("which", range(1, 40, 3))
@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-12), ("bfloat16", 6e-2)])
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_plan_computes_the_same(name, dtype, rtol, which, plans, monkeypatch):
    _, _, found, expected = searched(monkeypatch, plans, name, which, dtype)
    check(found, expected, rtol)


def test_no_budget_is_what_is_predicted(plans, graph):
    report = gsb.precompile(graph, 8, budget=0, progress=False, search=True)
    assert {row.state for row in report.rows} == {"predicted"} and plans.records() == []
    assert all(measured is None for row in report.rows for _, _, measured in row.tried)


def test_ctrl_c_keeps_what_was_searched(plans, graph, monkeypatch):
    measure, calls = search_module.halved, []

    def interrupted(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return measure(*given)

    monkeypatch.setattr(search_module, "halved", interrupted)
    monkeypatch.setattr(search_module, "promising", lambda predicted: list(predicted)[:2])
    report = gsb.precompile(graph, 8, ("sum", "dot"), budget="1h", progress=False, search=True)
    assert report.interrupted and not report.complete
    assert [row.state for row in report.rows] == ["measured", "not reached", "not reached"]
    assert len(PlanDatabase(plans.path).records()) == 1


def test_the_report_says_what_was_gained(plans, graph, monkeypatch):
    monkeypatch.setattr(search_module, "promising", lambda predicted: list(predicted)[:2])
    monkeypatch.setattr(search_module, "halved", lambda arms, *_: {arm: 1.0 + (arm != arms[-1]) for arm in arms})
    report = gsb.precompile(graph, 8, "max", backward=False, budget="1h", progress=False, search=True)
    (row,) = report.rows
    assert (row.regret, row.regret_now) == (1.0, 0.0) and row.plans in (2, 3)
    assert sorted(measured for _, _, measured in row.tried if measured) == [1.0, 2.0, 2.0][: row.plans]
    text = str(report)
    assert "regret before" in text and "100%" in text and "100.0% on average, 100% at worst" in " ".join(text.split())
    explained = gsb.explain(graph, "max", 8)
    assert explained.plan == row.plan and explained.choice.source == "measured" and "measured, µs" in str(explained)


@pytest.mark.short(5)
@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"search": "yes"}, TypeError, "search must be True or False, got 'yes' of type str"),
        ({"search": True, "budget": -1}, ValueError, "-1"),
        ({"search": True, "budget": "soon"}, ValueError, "'soon'.*30s"),
        ({"search": True, "ops": "som"}, ValueError, "'som'.*sum"),
        ({"search": True, "features": 0}, ValueError, "0"),
    ],
)
def test_bad_arguments_are_quoted(arguments, error, message, graph, plans):
    with pytest.raises(error, match=message):
        gsb.precompile(graph, **{"progress": False, **arguments})


def test_plans_of_a_gpu_are_not_searched(graph, plans, monkeypatch):
    monkeypatch.setattr(precompile_module, "gpu_of", lambda device: device)
    with pytest.raises(ValueError, match="search is of plans on a CPU, and .* is on cpu: leave search out"):
        gsb.precompile(graph, 8, progress=False, search=True)


def test_what_is_measured_of_a_message_with_sums_is_what_its_plan_is_asked_for():
    graph = gsb.Graph.from_coo(torch.tensor([0, 0, 1, 2]), torch.tensor([1, 2, 0, 1]), (3, 3))
    x = torch.randn(3, 16)
    with decisions() as told:
        gsb.aggregate(graph, "dot(x0, x1)", [("u", x), ("v", x)])
    (decision,) = told
    assert [key[:2] for key in graph.plans] == [(decision.problem.kind, decision.problem.features)]
