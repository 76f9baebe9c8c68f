"""Reductions that are an entry of the table alone, as docs/adding-a-reduction.md has one added: in every type and under
every plan, with gradients of any order.

``logsumexp`` folds messages, with a gradient that reads the result. ``absmax`` chooses one of them.
"""

from __future__ import annotations

from unittest import mock

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.language.expr import call, equal, maximum, minimum, number, select
from gnn_sparse_backend.compiler.language.reduction import REDUCTIONS, Reduction
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan, PartPlan
from gnn_sparse_backend.planner.cpu.rows import RowPlan, ScatteredPlan
from tests.ops.message_oracle import STRUCTURES, at_edges

LOWEST = float("-inf")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
PLANS = {
    "one pass": (RowPlan(2), True),
    "in parts": (PartPlan(2, part=4), True),
    "in partitions": (PartitionPlan(2, partitions=3), True),
    "in lanes": (RowPlan(2, in_lanes=True), False),
    "scattered": (ScatteredPlan(2), False),
}
"""And whether a reduction that nobody else knows of can run by it."""


def log_add_exp(x, y):
    greater, less = maximum(x, y), minimum(x, y)
    both = greater + call("log", 1.0 + call("exp", less - greater))
    return select(equal(less, number(LOWEST, x.dtype)), greater, both)


def absolute(x):
    return call("abs", x)


ADDED = (
    Reduction("logsumexp_", LOWEST, "mul(cotangent, exp(sub(message, result)))", log_add_exp),
    Reduction(
        "absmax_",
        0.0,
        beats=lambda x, y: absolute(x) > absolute(y),
        matches=lambda x, y: absolute(x) >= absolute(y),
    ),
)


@pytest.fixture(autouse=True)
def added():
    with mock.patch.dict(REDUCTIONS, {reduction.name: reduction for reduction in ADDED}):
        yield


def expected(edges, message: torch.Tensor, reduce: str) -> torch.Tensor:
    """Row by row, in the type of the message."""
    empty = {"logsumexp_": LOWEST, "absmax_": 0.0}[reduce]
    rows = []
    for row in range(edges.graph.shape[0]):
        of_row = message[edges.row == row]
        if not len(of_row):
            rows.append(message.new_full(message.shape[1:], empty))
        elif reduce == "logsumexp_":
            rows.append(of_row.logsumexp(0))
        else:
            best = of_row.gather(0, of_row.abs().max(0, keepdim=True).indices)
            rows.append((of_row == best).to(message).mul(of_row).sum(0) / (of_row == best).sum(0))
    return torch.stack(rows)


def operands_of(edges, width: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (edges.graph.shape[1], width), (edges.graph.num_edges, 1)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def check(structure: str, reduce: str, width: int, dtype: torch.dtype) -> object:
    """Result and gradients are those of torch. Gives the plan that ran."""
    edges = STRUCTURES[structure]()
    given = operands_of(edges, width, dtype)
    exact = [x.detach().double().requires_grad_() for x in given]
    out = gsb.aggregate(edges.graph, "mul(x0, x1)", list(zip("ue", given)), reduce)
    plan = gsb.last_run().steps[-1].plan
    # messages are compared as they would be stored
    message = at_edges(edges, "u", exact[0], 1) * exact[1]
    stored = message + (message.to(dtype).double() - message).detach() if reduce == "absmax_" else message
    wanted = expected(edges, stored, reduce)
    near = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(out, wanted.to(dtype), **near)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    cotangent[(edges.graph.in_degrees == 0).nonzero().flatten()] = 0
    found = torch.autograd.grad(out, given, cotangent)
    theirs = torch.autograd.grad(wanted, exact, cotangent.double())
    for mine, theirs_ in zip(found, theirs):
        scale = max(1.0, theirs_.abs().max().item())
        torch.testing.assert_close(mine.double() / scale, theirs_ / scale, **near)
    return plan


@pytest.mark.parametrize("reduce", [reduction.name for reduction in ADDED])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("structure", ["messy", "own_order"])
def test_every_type(structure, dtype, reduce):
    check(structure, reduce, 3, dtype)


@pytest.mark.parametrize("reduce", [reduction.name for reduction in ADDED])
@pytest.mark.parametrize("plan", PLANS)
def test_every_plan(plan, reduce, monkeypatch):
    """Or what of it the reduction can run by, which is found out and not looked up."""
    wanted, runs = PLANS[plan]
    given = [wanted, *[RowPlan(2)] * 9]  # of the result, and of all that its gradients are made of
    monkeypatch.setattr("gnn_sparse_backend.ops.message.calls.plan_of", lambda *about: given.pop(0))
    assert check("messy", reduce, 1, torch.float32) == (wanted if runs else RowPlan(2))
    monkeypatch.undo()


@pytest.mark.parametrize("reduce", [reduction.name for reduction in ADDED])
def test_on_the_way_to_a_gpu(reduce, serial_gpu):
    for width in (1, 7, 40):
        check("own_order", reduce, width, torch.float32)
    assert "aggregate" in serial_gpu


@pytest.mark.parametrize("reduce", [reduction.name for reduction in ADDED])
def test_gradients_of_any_order(reduce):
    edges = STRUCTURES["own_order"]()
    full = edges.graph.in_degrees > 0

    def reduced(x, e):
        return gsb.aggregate(edges.graph, "mul(x0, x1)", [("u", x), ("e", e)], reduce)[full]

    operands = [x.detach().requires_grad_() for x in operands_of(edges, 2, torch.float64)]
    assert torch.autograd.gradcheck(reduced, operands)
    assert torch.autograd.gradgradcheck(reduced, operands, fast_mode=True)


def test_every_face_knows_it():
    edges = STRUCTURES["own_order"]()
    x = operands_of(edges, 2, torch.float32)[0].detach()
    wanted = expected(edges, x[edges.col], "logsumexp_")
    for out in (
        gsb.spmm(edges.graph, x, reduce="logsumexp_"),
        gsb.gspmm(edges.graph, "copy_u", "logsumexp_", u=x),
        torch.compile(lambda x: gsb.spmm(edges.graph, x, reduce="logsumexp_"), fullgraph=True, backend="aot_eager")(x),
    ):
        torch.testing.assert_close(out, wanted)
    lengths = torch.tensor([2, 0, 3])
    segments = gsb.segment_reduce(x[:5], lengths, "logsumexp_")
    torch.testing.assert_close(segments[[0, 2]], torch.stack([x[:2].logsumexp(0), x[2:5].logsumexp(0)]))
    assert segments[1].eq(LOWEST).all()


def test_what_is_no_entry_is_refused_at_the_door():
    edges = STRUCTURES["own_order"]()
    x = operands_of(edges, 2, torch.float32)[0]
    with pytest.raises(ValueError, match="reduce must be one of 'sum', .*'absmax_', got 'median'|median"):
        gsb.aggregate(edges.graph, "x0", [("u", x)], "median")
