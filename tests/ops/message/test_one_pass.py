"""Rows taken in the order of their lengths: the same bits, from the call on at which a structure counts as used
again.
"""

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core.plans import plan_of
from gnn_sparse_backend.ops.message.executables import one_pass as row_order
from gnn_sparse_backend.ops.message.executables.one_pass import ROWS_BY_LENGTH
from gnn_sparse_backend.planner import machine
from gnn_sparse_backend.planner.cpu.rows import USED_AGAIN, ScatteredPlan, pays_in_order
from tests.covering import covering
from tests.ops.message_oracle import DTYPES, EMPTY, STRUCTURES, case_name, from_coo, values

CALLS = {
    "sum": lambda graph, x, w: gsb.spmm(graph, x),
    "weighted": lambda graph, x, w: gsb.spmm(graph, x, w),
    "mean": lambda graph, x, w: gsb.spmm(graph, x, reduce="mean"),
    "max": lambda graph, x, w: gsb.spmm(graph, x, reduce="max"),
    "last": lambda graph, x, w: gsb.gspmm(graph, "mul", "min", x, w[:, None], ties="last"),
    "of rows": lambda graph, x, w: gsb.aggregate(
        graph, "mul(x0, x1)", [("u", x), ("v", x.new_ones(graph.shape[0], 1) / 2)]
    ),
}
CASES = covering(
    {
        "call": list(CALLS),
        "structure": [*STRUCTURES, *EMPTY],
        "dtype": DTYPES,
        "index": [32, 64],
        "features": [1, 7, 16, 70],
    },
    as_one=True,
)


@pytest.mark.short(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(case_name, case)))
def test_the_bits_of_rows_as_they_stand(case, monkeypatch, set_index_bits, poisoned_memory):
    call, structure, dtype, bits, features = case
    set_index_bits(bits)
    found = []
    for ordered in (False, True):
        monkeypatch.setattr(row_order, "pays_in_order", lambda *about, ordered=ordered: ordered)
        graph = (from_coo(*EMPTY[structure]) if structure in EMPTY else STRUCTURES[structure]()).graph
        row_order.expect_use(graph)
        row_order.expect_use(graph.transpose())
        x = values(1, graph.shape[1], features).to(dtype).requires_grad_()
        w = values(2, graph.num_edges).to(dtype).requires_grad_()
        out = CALLS[call](graph, x, w)
        gradients = torch.autograd.grad(out, (x, w), values(3, *out.shape).to(dtype), allow_unused=True)
        found.append([out, *(g for g in gradients if g is not None)])
        if structure != "hub":  # its long row is cut, and needs several passes
            assert (ROWS_BY_LENGTH in graph.facts) == (ordered and graph.num_edges > 0)
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def many(edges: int = 40_000) -> gsb.Graph:
    generator = torch.Generator().manual_seed(0)
    return gsb.Graph.from_coo(
        torch.randint(0, 5000, (edges,), generator=generator),
        torch.randint(0, 3000, (edges,), generator=generator),
        (5000, 3000),
    )


def test_a_structure_is_ordered_at_the_call_from_which_it_is_used_again():
    graph, x = many(), torch.ones(3000, 4)
    expected = gsb.spmm(graph, x, reduce="max")
    for number in range(2, USED_AGAIN + 3):
        assert (ROWS_BY_LENGTH in graph.facts) == (number > USED_AGAIN)
        assert torch.equal(gsb.spmm(graph, x, reduce="max"), expected)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_scattered_sums_are_followed_by_rows_in_order(reduce):
    generator = torch.Generator().manual_seed(0)
    graph = gsb.Graph.from_coo(
        torch.randint(0, 9000, (40_000,), generator=generator),
        torch.randint(0, 3000, (40_000,), generator=generator),
        (9000, 3000),
    )
    x, w = torch.randn(3000, 2, generator=generator), torch.randn(40_000, generator=generator)
    assert isinstance(plan_of(graph, f"{reduce}:column", 2, x.dtype), ScatteredPlan)
    expected = [gsb.spmm(graph, x, reduce=reduce), gsb.spmm(graph, x, w, reduce)]
    row_order.expect_use(graph)
    assert torch.equal(gsb.spmm(graph, x, w, reduce), expected[1]) and ROWS_BY_LENGTH in graph.facts
    assert torch.equal(gsb.spmm(graph, x, reduce=reduce), expected[0])


def test_where_it_pays(monkeypatch):
    assert pays_in_order(5000, 40_000, 16, False)
    assert not pays_in_order(5000, 40_000, 17, False)  # rows are long enough to hide their ends
    assert not pays_in_order(500, 40_000, 4, False)  # or have many non-zeros
    assert not pays_in_order(5000, 20_000, 1, False)  # too little to save
    # an operand at the edges is read out of order, from a core's own cache or from further off
    for cache, wide, long in ((160_000, True, True), (159_999, False, False)):
        monkeypatch.setattr(machine, "private_cache_bytes", lambda cache=cache: cache)
        assert pays_in_order(5000, 40_000, 2, True)
        assert pays_in_order(5000, 40_000, 3, True) == wide and pays_in_order(4000, 40_000, 1, True) == long
        assert pays_in_order(7000, 40_000, 8, True)  # where the other choice is additions in memory
        assert pays_in_order(7000, 40_000, 9, True) == wide


def test_explain_says_so():
    for features, said in ((4, True), (64, False)):
        text = " ".join(str(gsb.explain(many(), "max", features)).split())
        assert ("in the order of their lengths" in text) == said
