"""Gradients of maxima that copy, where the columns that they chose are kept: against torch's own gather and scatter in
float64.
"""

from functools import partial

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message import operators
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.ops.message.operators import aggregate
from gnn_sparse_backend.ops.message.reductions import argmax_scatter as choices
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.structures.facts import columns_ascend
from tests.covering import covering
from tests.ops.message_oracle import (
    DTYPES,
    EMPTY,
    LAYOUTS,
    STRUCTURES,
    assert_close_to,
    case_name,
    from_coo,
    from_csr,
    messages,
    reduced,
    values,
)

TIES = ("even", "even_with_zero", "last", "first")
REDUCTIONS = [(reduce, ties) for ties in TIES for reduce in ("max", "min")]
FEATURES = [(), (1,), (7,), (16,), (70,), (3, 5), (40, 1)]
PLANS = {"whole": RowPlan, "partitions": lambda groups: PartitionPlan(groups, partitions=3)}


def dense(ascending: bool = True):
    """Rows of about thirty edges over fifty columns, some of them twice; an empty row first and last."""
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(0, 40, (1200,), generator=generator).sort().values + 1
    col = torch.randint(0, 50, (1200,), generator=generator)
    if ascending:
        order = torch.argsort(row * 50 + col)
        row, col = row[order], col[order]
    return from_csr(row.numpy(), col.numpy(), (42, 50))


def few_ties(seed: int, *shape: int) -> torch.Tensor:
    """Numbers that every type holds, of which few are equal among a row's."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 129, shape, generator=generator).double() / 64


GRAPHS = {"ascending": dense, "unordered": lambda: dense(False), **STRUCTURES}
CASES = covering(
    {
        "reduction": REDUCTIONS,
        "features": FEATURES,
        "dtype": DTYPES,
        "index": [32, 64],
        "structure": list(GRAPHS),
        "layout": list(LAYOUTS),
        "plan": list(PLANS),
        "values": [values, few_ties],
        "ties": ["few", "any"],
    },
    as_one=True,
)


def taken(monkeypatch, few: int = choices.FEW_TIES) -> list:
    """Keep choices whatever the degrees are, and note which gradients came from them."""
    monkeypatch.setattr(choices, "PAYS", 0)
    monkeypatch.setattr(choices, "NARROW_PAYS", 0)
    monkeypatch.setattr(choices, "FEW_TIES", few)
    found = []

    def noted(own, *args):
        result = own(*args)
        found.append(result is not None)
        return result

    for name in ("copied_gradient", "even_gradient"):
        monkeypatch.setattr(operators, name, partial(noted, getattr(choices, name)))
    return found


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join(map(case_name, case[:7])) + f"-{case[7].__name__}-{case[8]}"
)
def test_matrix(case, monkeypatch, set_plan, set_index_bits, poisoned_memory):
    (reduce, ties), features, dtype, bits, structure, layout, plan, draw, share = case
    noted = taken(monkeypatch, few=0 if share == "any" else choices.FEW_TIES)
    set_plan(PLANS[plan])
    set_index_bits(bits)
    edges = GRAPHS[structure]()
    graph = edges.graph
    exact = LAYOUTS[layout](draw(1, graph.shape[1], *features))
    given = LAYOUTS[layout](exact.to(dtype)).requires_grad_()
    actual = aggregate(message_op("x0", ("column",), reduce, ties), graph, given)
    inputs = exact.clone().requires_grad_()
    expected, _shares = reduced(edges, messages(edges, lambda x: x, "u", [inputs]), reduce, ties, dtype)
    assert torch.equal(actual.double(), expected.detach())

    cotangent = values(3, *expected.shape)
    of_layout = cotangent if layout == "one_row_repeated" else LAYOUTS[layout](cotangent)
    (gradient,) = torch.autograd.grad(actual, given, of_layout.to(dtype))
    (wanted,) = torch.autograd.grad(expected, inputs, cotangent, retain_graph=True)
    (bound,) = torch.autograd.grad(expected, inputs, cotangent.abs())
    assert gradient.dtype == dtype
    # equal shares of an edge that is there hundreds of times are rounded the same way
    shares = int(graph.transpose().in_degrees.max())
    assert_close_to(gradient, wanted, bound, 2 + shares if "even" in ties else 0)
    if "even" not in ties:
        assert noted == [True]
    elif dtype in (torch.float32, torch.float64):
        assert len(noted) == 1 and (share == "few" or noted[0])
    else:
        assert not noted


@pytest.mark.short(16)
@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("few", [0, choices.FEW_TIES])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_what_is_scattered_into_zeros(reduce, few, weighted, dtype, monkeypatch):
    """PyTorch gives a share to the zeros, included or not, where the result is 0."""
    noted = taken(monkeypatch, few)
    torch.manual_seed(0)
    edges, sign = dense(), 1 if reduce == "min" else -1
    exact = (sign * (torch.randint(0, 40, (50, 3)).clamp(min=4) - 4)).double().requires_grad_()  # a tenth is 0
    weight, cotangent = torch.randint(1, 3, (1200, 1)).double(), values(3, 42, 3)
    terms = exact[edges.col] * weight if weighted else exact[edges.col]
    index = edges.row[:, None].expand(-1, 3)
    theirs = torch.zeros(42, 3).double().scatter_reduce(0, index, terms, f"a{reduce}", include_self=False)
    message = ("mul(x1, x0)", ("column", "edge")) if weighted else ("x0", ("column",))
    x = exact.detach().to(dtype).requires_grad_()
    operands = (x, weight.to(dtype)) if weighted else (x,)
    ours = aggregate(message_op(*message, reduce, "even_with_zero"), edges.graph, *operands)
    assert torch.equal(ours.double(), theirs) and (theirs[1:41] == 0).float().mean() > 0.3
    (gradient,) = torch.autograd.grad(ours, x, cotangent.to(dtype))
    (wanted,) = torch.autograd.grad(theirs, exact, cotangent, retain_graph=True)
    (bound,) = torch.autograd.grad(theirs, exact, cotangent.abs())
    assert_close_to(gradient, wanted, bound, 3)
    assert any(noted) == (not weighted and dtype is torch.float64 and not few)


def test_what_is_kept():
    copies, dense_graph = (
        {ties: message_op("x0", ("column",), "max", ties) for ties in ("even", "last", "first")},
        dense().graph,
    )
    x, half = torch.ones(50, 2), torch.ones(50, 2, dtype=torch.bfloat16)
    kept = lambda of, graph, x: choices.kept_choice(of, graph, [x])
    assert [kept(of, dense_graph, x) for of in copies.values()] == ["unique", "column", "column"]
    assert [kept(of, dense_graph, half) for of in copies.values()] == [None, "column", "column"]
    sparse, wide = STRUCTURES["messy"]().graph, torch.ones(13, 5)  # five edges for each row
    assert [kept(of, sparse, wide) for of in copies.values()] == [None, "number", "number"]
    assert [kept(of, sparse, wide[:, :4]) for of in copies.values()] == ["unique", "column", "column"]
    one_each = from_coo([0, 1, 2], [2, 1, 0], (3, 3)).graph
    assert [kept(of, one_each, wide[:, :1]) for of in copies.values()] == [None, "number", "number"]
    assert kept(message_op("neg(x0)", ("column",), "max", "even"), dense_graph, x) is None
    assert kept(message_op("x0", ("column",), "max", "even_if_positive"), dense_graph, x) is None
    assert kept(message_op("x0", ("edge",), "max", "last"), dense_graph, x) == "number"
    assert kept(message_op("x0", ("column",), "sum"), dense_graph, x) is None


def test_whether_columns_ascend():
    assert [columns_ascend(dense(ascending).graph) for ascending in (True, False)] == [True, False]
    # from row to row they may fall, over empty rows too
    assert columns_ascend(from_coo([0, 0, 3, 3], [2, 3, 0, 0], (6, 4)).graph)
    for name in EMPTY:
        assert columns_ascend(from_coo(*EMPTY[name]).graph)


@pytest.mark.parametrize("structure", EMPTY)
@pytest.mark.parametrize("reduce, ties", REDUCTIONS)
def test_structures_without_edges(structure, reduce, ties, monkeypatch):
    taken(monkeypatch)
    graph = from_coo(*EMPTY[structure]).graph
    x = torch.zeros(graph.shape[1], 3, requires_grad=True)
    out = aggregate(message_op("x0", ("column",), reduce, ties), graph, x)
    assert torch.equal(torch.autograd.grad(out, x, torch.ones_like(out))[0], torch.zeros_like(x))


@pytest.mark.parametrize("few", [0, choices.FEW_TIES], ids=["shared", "all edges"])
@pytest.mark.parametrize("features", [(4,), ()])
def test_infinities_and_nan_are_those_of_torch(few, features, monkeypatch):
    noted = taken(monkeypatch, few=few)
    edges = dense()
    u = few_ties(1, 50, *features).float()
    u.view(50, -1)[3, -1], u.view(50, -1)[5, -1], u.view(50, -1)[2, 0] = float("nan"), float("inf"), float("-inf")
    mine, theirs = (u.clone().requires_grad_() for _ in range(2))
    out = gsb.gspmm(edges.graph, "copy_u", "max", mine)
    index = edges.row.view(-1, *(1 for _ in features)).expand(-1, *features)
    expected = torch.zeros(42, *features).scatter_reduce(0, index, theirs[edges.col], "amax", include_self=False)
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
    cotangent = values(2, 42, *features).float()
    torch.testing.assert_close(
        torch.autograd.grad(out, mine, cotangent), torch.autograd.grad(expected, theirs, cotangent), equal_nan=True
    )
    assert noted == [few == 0]


@pytest.mark.parametrize("reduce, ties", REDUCTIONS)
def test_gradcheck(reduce, ties, monkeypatch):
    noted = taken(monkeypatch, few=0)
    graph = dense().graph
    x = torch.randperm(300, generator=torch.Generator().manual_seed(0)).double() + 1
    x = (x / 300).view(50, 2, 3).requires_grad_()

    def function(x):
        # not the empty rows, which are infinite
        return aggregate(message_op("x0", ("column",), reduce, ties), graph, x)[1:-1]

    assert gradcheck(function, x, fast_mode=True)
    assert gradgradcheck(function, x, fast_mode=True)
    assert all(noted)


def test_second_derivatives_of_shared_maxima(monkeypatch):
    """The gradient is linear in the cotangent, and so is what its own gradient sends back: each message its share."""
    taken(monkeypatch, few=0)
    edges = dense()
    x = values(1, 50, 3)
    found = []
    for run in (
        lambda u: gsb.gspmm(edges.graph, "copy_u", "max", u),
        lambda u: torch.zeros(42, 3, dtype=torch.float64).scatter_reduce(
            0, edges.row[:, None].expand(-1, 3), u[edges.col], "amax", include_self=False
        ),
    ):
        u = x.clone().requires_grad_()
        cotangent = values(2, 42, 3).requires_grad_()
        (gradient,) = torch.autograd.grad(run(u), u, cotangent, create_graph=True)
        found.append(torch.autograd.grad((gradient * values(3, 50, 3)).sum(), cotangent)[0])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("ties", ["even", "last"])
def test_the_same_bits_for_any_number_of_threads(ties, monkeypatch):
    noted = taken(monkeypatch, few=0)
    generator = torch.Generator().manual_seed(0)
    row, col = torch.randint(0, 400, (8000,), generator=generator), torch.randint(0, 300, (8000,), generator=generator)
    graph = gsb.Graph.from_coo(row, col, (400, 300))
    x = torch.randn(300, 200, generator=generator).requires_grad_()
    cotangent = torch.randn(400, 200, generator=generator)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(torch.autograd.grad(gsb.gspmm(graph, "copy_u", "max", x, ties=ties), x, cotangent)[0])
    finally:
        torch.set_num_threads(threads)
    assert noted == [True] * 3
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
