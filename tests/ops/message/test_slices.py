"""Features in slices that are packed one after the other: the same bits as whole rows, for every operand and result."""

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.planner.cpu.slices import SlicePlan
from tests.covering import covering
from tests.ops.message_oracle import DTYPES, EMPTY, STRUCTURES, case_name, from_coo, values

CALLS = {
    "sum": lambda graph, x, w: gsb.spmm(graph, x),
    "weighted": lambda graph, x, w: gsb.spmm(graph, x, w[:, 0]),
    "mean": lambda graph, x, w: gsb.spmm(graph, x, reduce="mean"),
    "max": lambda graph, x, w: gsb.spmm(graph, x, w[:, 0], reduce="max"),
    "wide edges": lambda graph, x, w: gsb.gspmm(graph, "mul", "sum", x, w),
    "last": lambda graph, x, w: gsb.gspmm(graph, "mul", "min", x, w, ties="last"),
    "of rows": lambda graph, x, w: gsb.aggregate(
        graph, "mul(x0, x1)", [("u", x), ("v", values(9, graph.shape[0], x.shape[1]).to(x))]
    ),
    "of all": lambda graph, x, w: gsb.aggregate(graph, "mul(x0, x1)", [("u", x), ("all", values(8, x.shape[1]).to(x))]),
    "three dimensions": lambda graph, x, w: gsb.spmm(
        graph, x[:, : x.shape[1] // 3 * 3].reshape(len(x), x.shape[1] // 3, 3)
    ),
}
CASES = covering(
    {
        "call": list(CALLS),
        "structure": [*STRUCTURES, *EMPTY],
        "dtype": DTYPES,
        "index": [32, 64],
        "features": [9, 16, 33, 40],
    },
    as_one=True,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(case_name, case)))
def test_the_bits_of_whole_rows(case, set_plan, set_index_bits, poisoned_memory):
    call, structure, dtype, bits, features = case
    set_index_bits(bits)
    found = []
    for plan in (RowPlan(2), SlicePlan(2, 3, width=8)):
        set_plan(plan)
        graph = (from_coo(*EMPTY[structure]) if structure in EMPTY else STRUCTURES[structure]()).graph
        x = values(1, graph.shape[1], features).to(dtype).requires_grad_()
        w = values(2, graph.num_edges, features).to(dtype).requires_grad_()
        out = CALLS[call](graph, x, w)
        gradients = torch.autograd.grad(out, (x, w), values(3, *out.shape).to(dtype), allow_unused=True)
        found.append([out, *(g for g in gradients if g is not None)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def random_graph(rows=50, cols=60, edges=400):
    rng = np.random.default_rng(0)
    return gsb.Graph.from_coo(rng.integers(rows, size=edges), rng.integers(cols, size=edges), (rows, cols))


def test_what_ran_and_infinities_and_strides(set_plan):
    set_plan(SlicePlan(2, width=8))
    graph = random_graph()
    longer = torch.randn(60, 50, dtype=torch.float64)
    longer[3, 5], longer[7, 9], longer[11, 20] = float("inf"), float("-inf"), float("nan")
    x = longer[:, 2:30]
    out = gsb.spmm(graph, x)
    row = torch.repeat_interleave(torch.arange(50), graph.in_degrees.long())
    wanted = torch.zeros(50, 28, dtype=torch.float64).index_add_(0, row, x[graph.indices.long()])
    torch.testing.assert_close(out, wanted, equal_nan=True)
    (step,) = gsb.last_run().steps
    assert "slices of 8" in str(step) and len(step.kernels) == 2


def test_heads_are_not_sliced(set_plan):
    set_plan(SlicePlan(2, width=8))
    graph = random_graph()
    x, w = values(1, 60, 4, 6), values(2, 400, 4, 1)
    out = gsb.gspmm(graph, "mul", "sum", x, w)
    (step,) = gsb.last_run().steps
    assert step.plan == RowPlan(2)
    set_plan(RowPlan(1))
    assert torch.equal(out, gsb.gspmm(random_graph(), "mul", "sum", x, w))
