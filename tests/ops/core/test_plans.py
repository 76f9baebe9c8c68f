"""Every member of the kernel family computes the same: messages against torch in float64, SpMM against SciPy, and the
same bits at every run and for any number of threads."""

import numpy as np
import pytest
import scipy.sparse
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core.plans import plan_of
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan, PartPlan
from gnn_sparse_backend.planner.cpu.rows import RowPlan, ScatteredPlan
from tests.covering import covering
from tests.ops.message_oracle import (
    DTYPES,
    EMPTY,
    MESSAGES,
    STRUCTURES,
    assert_step,
    case_name,
    from_coo,
    messages,
    reduced,
    values,
)
from tests.ops.operators import OPERATORS, step

pytestmark = pytest.mark.cpu_only("plans of the CPU")
PLANS = {
    "lanes": lambda groups: RowPlan(groups, 3, in_lanes=True),
    "scattered": lambda groups: ScatteredPlan(groups, 3),
    "partitions": lambda groups: PartitionPlan(groups, partitions=3),
    "parts": lambda groups: PartPlan(groups, part=5),
    "lanes_in_partitions": lambda groups: PartitionPlan(groups, in_lanes=True, partitions=45),
    "parts_of_one": lambda groups: PartPlan(groups, part=1),
    "lanes_in_parts": lambda groups: PartPlan(groups, 0, "rows", True, part=37),
}


CASES = covering(
    {
        "plan": list(PLANS),
        "op": ["copy_u", "mul"],
        "reduction": [("sum", "even"), ("mean", "even"), ("max", "even"), ("max", "last")],
        "features": [((), ()), ((3, 5), (3, 1)), ((70,), ())],
        "dtype": DTYPES,
        "index": [32, 64],
        "structure": list(STRUCTURES),
    },
    as_one=True,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(case_name, case)))
def test_matrix(case, set_plan, set_index_bits):
    plan, op, (reduce, ties), (u_dims, e_dims), dtype, bits, structure = case
    set_plan(PLANS[plan])
    set_index_bits(bits)
    edges = STRUCTURES[structure]()
    graph = edges.graph
    exact = {"u": values(1, graph.shape[1], *u_dims), "e": values(2, graph.num_edges, *e_dims, power=op == "div")}
    used = {"copy_u": "u", "copy_e": "e"}.get(op, "ue")
    given = {name: exact[name].to(dtype).requires_grad_() for name in used}
    actual = gsb.gspmm(graph, op, reduce, **given, ties=ties)

    inputs = [exact[name].clone().requires_grad_() for name in used]
    expected, shares = reduced(edges, messages(edges, MESSAGES[op], used, inputs), reduce, ties, dtype)
    sizes = [exact[name].abs().requires_grad_() for name in used]
    magnitude, _ = reduced(edges, messages(edges, MESSAGES[op], used, sizes), reduce, ties, dtype, shares)
    # shares of ties and means are inexact, and thousands of them may be added up
    roundings = 2 + len(edges.row) ** 0.5 if reduce != "sum" else 0
    assert_step(actual, list(given.values()), expected, inputs, magnitude, sizes, roundings)


@pytest.mark.parametrize("plan", ["lanes", "partitions", "lanes_in_parts"])
@pytest.mark.parametrize(
    "name",
    sorted(n for n in OPERATORS if n in ("spmm", "spmm_weighted_mean", "gspmm_copy_u_max", "segment_reduce_sum")),
)
def test_the_same_bits_for_any_number_of_threads(plan, name, set_plan):
    set_plan(PLANS[plan])
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(0, 297, (4000,), generator=generator)
    row[:1000] = 7
    graph = gsb.Graph.from_coo(row, torch.randint(0, 200, (4000,), generator=generator), (300, 200))
    torch.manual_seed(0)
    operands = OPERATORS[name].operands(graph, torch.float32)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5, 2):
            torch.set_num_threads(threads)
            found.append(step(name, graph, operands))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a.view(torch.int32), b.view(torch.int32))


@pytest.mark.short(2)
@pytest.mark.parametrize("indices, passes", [([0, 3, 1], 2), ([3, 0, 1], 1)], ids=["ascending", "not ascending"])
def test_passes_over_columns_keep_the_order_of_edges(indices, passes, set_plan):
    """Where the result depends on it, columns that do not ascend are gone through in one pass."""
    set_plan(lambda groups: PartitionPlan(groups, partitions=2))
    graph = gsb.Graph.from_csr(torch.tensor([0, 2, 3]), torch.tensor(indices), (2, 4))
    for _ in range(2):  # planned, and found again
        assert plan_of(graph, "max:column", 8, torch.float32).partitions == 2
        assert plan_of(graph, "max:column", 8, torch.float32, in_order=True).partitions == passes


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("width", [1, 33])
def test_products_of_scipy(plan, width, set_plan, poisoned_memory):
    set_plan(PLANS[plan])
    matrix = scipy.sparse.random(61, 47, 0.2, "csr", random_state=1, dtype=np.float64)
    matrix[5] = 1.0
    matrix = matrix.tocsr()
    x = np.random.default_rng(0).standard_normal((47, width))
    out = gsb.spmm(gsb.Graph.from_scipy(matrix), torch.from_numpy(x).float(), torch.from_numpy(matrix.data).float())
    np.testing.assert_allclose(out.numpy(), matrix @ x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("structure", EMPTY)
def test_structures_without_edges(plan, reduce, structure, set_plan, poisoned_memory):
    set_plan(PLANS[plan])
    edges = from_coo(*EMPTY[structure])
    out = gsb.spmm(edges.graph, torch.zeros(edges.graph.shape[1], 3), reduce=reduce)
    assert torch.equal(out, torch.zeros(edges.graph.shape[0], 3))


@pytest.mark.short(6)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_not_finite_stays_in_its_rows(plan, width, value, set_plan):
    set_plan(PLANS[plan])
    edges = STRUCTURES["messy"]()
    x = torch.ones(13, width)
    x[7] = value
    touched = torch.zeros(13, dtype=torch.bool)
    touched[edges.row[edges.col == 7]] = True
    for reduce in ("sum", "mean", "max"):
        out = gsb.spmm(edges.graph, x, reduce=reduce)
        assert torch.equal(~out.isfinite(), touched[:, None].expand(13, width))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 4])
def test_scattered_sums_have_the_bits_of_rows_one_after_the_other(width, dtype, set_plan):
    """By the rules, and then not; a graph in an order of its own, with empty rows and a hub."""
    generator = torch.Generator().manual_seed(0)
    row, col = torch.randint(0, 20_000, (2, 50_000), generator=generator)
    row[:500] = 7
    graph = gsb.Graph.from_coo(row, col, (20_000, 20_000))
    x, weight = torch.randn(20_000, width, dtype=dtype), torch.randn(50_000, dtype=dtype)
    calls = [
        lambda: gsb.spmm(graph, x),
        lambda: gsb.spmm(graph, x, weight),
        lambda: gsb.spmm(graph, x, weight, reduce="mean"),
    ]
    assert isinstance(plan_of(graph, "sum:column", width, x.dtype), ScatteredPlan)
    scattered = [call() for call in calls]
    set_plan(RowPlan)
    graph.plans.clear()
    for found, call in zip(scattered, calls):
        assert torch.equal(found, call())
    expected = torch.zeros(20_000, width, dtype=torch.float64).index_add(
        0, row, weight[:, None].double() * x[col].double()
    )
    torch.testing.assert_close(scattered[1].double(), expected, rtol=1e-5, atol=1e-5)


def test_one_row_with_all_edges_is_cut():
    """By the rules, not by force."""
    count = 200_000
    columns = torch.randint(0, 1000, (count,), generator=torch.Generator().manual_seed(0))
    graph = gsb.Graph.from_coo(torch.full((count,), 1), columns, (3, 1000))
    assert 0 < plan_of(graph, "sum:column", 16, torch.float64).part <= count // 64
    x = torch.randn(1000, 16, dtype=torch.float64)
    expected = torch.zeros(3, 16, dtype=torch.float64).index_add(0, torch.ones(count, dtype=torch.long), x[columns])
    torch.testing.assert_close(gsb.spmm(graph, x), expected)
    torch.testing.assert_close(
        gsb.spmm(graph, x.bfloat16().float(), reduce="mean"),
        expected.float() / torch.tensor([1, count, 1])[:, None],
        rtol=1e-2,
        atol=1e-3,
    )


@pytest.mark.parametrize("structure", ["sorted_csr", "own_order"])
@pytest.mark.parametrize("name", ["sddmm", "gsddmm_add", "gsddmm_div", "gspmm_last_max", "gspmm_mul_max"])
def test_edge_maps_that_fetch_ahead(name, structure, set_plan):
    """And the gradients of edge operands: what is fetched ahead of changes no bit."""
    graph = STRUCTURES[structure]().graph
    found = []
    for distance in (0, 5):
        set_plan(RowPlan(2, distance))
        graph.plans.clear()
        torch.manual_seed(0)
        found.append(step(name, graph, OPERATORS[name].operands(graph)))
    for a, b in zip(*found, strict=True):
        assert a.abs().sum() > 0 and torch.equal(a.view(torch.int32), b.view(torch.int32))
