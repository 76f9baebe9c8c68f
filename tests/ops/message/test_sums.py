"""Messages with sums over features are what PyTorch makes of them in float64, in one kernel, with their gradients."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradgradcheck

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.core.plans import planned
from gnn_sparse_backend.ops.message import operators
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.ops.message.operators import aggregate
from gnn_sparse_backend.planner import machine
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan, PartPlan
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.structures.csr import EdgeList
from tests.ops.message_oracle import STRUCTURES, Edges, from_coo, messages, reduced

ROUNDING = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1, keepdim=True)


def total(x: Tensor) -> Tensor:
    return x.sum(-1, keepdim=True)


FUSED = "mul(sigmoid(dot(x0, x1)), x0)"
CASES: dict[str, tuple[tuple[str, ...], tuple[tuple[int, ...], ...], Callable]] = {
    FUSED: ("uv", ((17,), (17,)), lambda x, y: dot(x, y).sigmoid() * x),
    "mul(x3, mul(tanh(dot(x0, x1)), x2))": (
        ("u", "v", "u", "e"),
        ((3, 4), (3, 4), (3, 7), (3, 1)),
        lambda x, y, z, w: w * dot(x, y).tanh() * z,
    ),
    "mul(sigmoid(dot(x0, x1)), x2)": ("uvv", ((2, 3), (3,), (1, 5)), lambda x, y, z: dot(x, y).sigmoid() * z),
    # where one sum is in another, which shares of a gradient are counted for each of its terms
    "sum(add(sum(x0), x1))": ("uv", ((4,), (4,)), lambda x, y: total(total(x) + y)),
    # an operand is read inside and outside of sums of other lengths
    "add(sum(mul(x0, x1)), add(x0, x2))": ("uve", ((1,), (4,), (3,)), lambda x, y, w: total(x * y) + x + w),
    "exp(neg(dot(sub(x0, x1), sub(x0, x1))))": ("uv", ((5,), (5,)), lambda x, y: total((x - y) ** 2).neg().exp()),
    "div(x0, add(2.0, exp(sum(tanh(mul(x1, mul(x0, dot(x0, x1))))))))": (
        "uv",
        ((6,), (6,)),
        lambda x, y: x / (2 + total((y * x * dot(x, y)).tanh()).exp()),
    ),
    "mul(sum(x0), x1)": (("all", "v"), ((4,), (1,)), lambda x, y: total(x) * y),
}


def tensors(edges: Edges, places, shapes, dtype=torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    graph = edges.graph
    rows = {"u": graph.shape[1], "v": graph.shape[0], "e": graph.num_edges}
    given = [(*shape,) if place == "all" else (rows[place], *shape) for place, shape in zip(places, shapes)]
    return [(torch.randn(shape, generator=generator, dtype=torch.float64) / 2).to(dtype) for shape in given]


def aligned(places, shapes, operands) -> list[Tensor]:
    rank = max(map(len, shapes))
    return [
        x if place == "all" else x.view(x.shape[0], *(1,) * (rank - len(shape)), *shape)
        for place, shape, x in zip(places, shapes, operands)
    ]


def assert_like_torch(edges: Edges, text: str, reduce: str, dtype=torch.float64) -> None:
    places, shapes, function = CASES[text]
    given = [x.requires_grad_() for x in tensors(edges, places, shapes, dtype)]
    exact = [x.detach().double().requires_grad_() for x in given]
    out = gsb.aggregate(edges.graph, text, list(zip(places, given)), reduce)
    of_edges = messages(edges, function, places, aligned(places, shapes, exact))
    expected, shares = reduced(edges, of_edges, reduce, "even", dtype)
    tolerance = {"rtol": ROUNDING[dtype], "atol": ROUNDING[dtype]}
    assert out.dtype is dtype and out.shape == expected.shape
    torch.testing.assert_close(out.double(), expected, **tolerance)
    if shares is not None and dtype is not torch.float64:
        return  # which messages are equal depends on rounding
    flows = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)
    if shares is not None:
        expected = reduced(edges, of_edges, reduce, "even", dtype, shares)[0]
    wanted = torch.autograd.grad(expected, exact, flows.double())
    for actual, gradient in zip(torch.autograd.grad(out, given, flows), wanted):
        scale = {"rtol": 4 * ROUNDING[dtype], "atol": 4 * ROUNDING[dtype] * max(1.0, gradient.abs().max().item())}
        torch.testing.assert_close(actual.double(), gradient, **scale)


@pytest.fixture(params=["kept", "gathered again"])
def sums(request, monkeypatch):
    """What gradients do about sums, whatever the graph."""
    monkeypatch.setattr(operators, "keeps_sums", lambda *_: request.param == "kept")


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("text", CASES)
def test_messages(text):
    assert_like_torch(STRUCTURES["messy"](), text, "sum")


@pytest.mark.parametrize(
    ("structure", "reduce", "dtype", "bits"),
    [
        ("own_order", "mean", torch.float32, 32),
        ("sorted_csr", "max", torch.float64, 64),
        ("hub", "sum", torch.bfloat16, 64),
        ("own_order", "min", torch.float16, 32),
        ("messy", "sum", torch.float32, 64),
    ],
)
def test_reductions_types_and_structures(structure, reduce, dtype, bits, set_index_bits):
    set_index_bits(bits)
    assert_like_torch(STRUCTURES[structure](), FUSED, reduce, dtype)


@pytest.mark.slow
@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_grid(structure, reduce, text, set_index_bits):
    for bits in (32, 64):
        set_index_bits(bits)
        for dtype in (torch.float64, torch.float32):
            assert_like_torch(STRUCTURES[structure](), text, reduce, dtype)


@pytest.mark.usefixtures("sums")
@pytest.mark.parametrize("text", [FUSED, "add(sum(mul(x0, x1)), add(x0, x2))"])
def test_second_gradients(text):
    edges = from_coo([1, 0, 3, 1], [0, 2, 1, 2], (4, 3))
    places, shapes, _ = CASES[text]
    given = [
        x.requires_grad_() for x in tensors(edges, places, [shape[:-1] + (min(shape[-1], 4),) for shape in shapes])
    ]
    assert gradgradcheck(lambda *x: gsb.aggregate(edges.graph, text, list(zip(places, x))), given)


def test_edge_maps():
    edges = STRUCTURES["own_order"]()
    for text in (FUSED, "sigmoid(dot(x0, x1))", "dot(x0, x1)"):
        x, y = (t.requires_grad_() for t in tensors(edges, "uv", ((2, 5), (2, 5))))
        out = gsb.edge_map(edges.graph, text, [("u", x), ("v", y)])
        at = dot(x[edges.col], y[edges.row])
        expected = {FUSED: at.sigmoid() * x[edges.col], "dot(x0, x1)": at}.get(text, at.sigmoid())
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
        flows = torch.randn(out.shape, dtype=torch.float64)
        for ours, theirs in zip(*(torch.autograd.grad(one, (x, y), flows) for one in (out, expected))):
            torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)
    product = gsb.aggregate(edges.graph, FUSED, [("u", x), ("v", y)], "prod")
    of_edges = gsb.edge_map(edges.graph, FUSED, [("u", x), ("v", y)])
    torch.testing.assert_close(product, gsb.gspmm(edges.graph, "copy_e", "prod", e=of_edges), rtol=1e-12, atol=1e-12)
    summed = gsb.edge_map(edges.graph, FUSED, [("u", x), ("v", y)], sum_last=True)
    torch.testing.assert_close(summed, total(gsb.edge_map(edges.graph, FUSED, [("u", x), ("v", y)])))


def kernels_of_last_run() -> list[str]:
    return re.findall(r"[0-9a-f]{12} for", str(gsb.last_run()))


def test_one_kernel_forward():
    """Nothing of the size of the edges is between the two loops over features."""
    edges = STRUCTURES["messy"]()
    x, y = tensors(edges, "uv", ((16,), (16,)), torch.float32)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        gsb.aggregate(edges.graph, FUSED, [("u", x), ("v", y)])
    operators = [event.key for event in profile.key_averages() if "mul" in event.key or "sum" in event.key]
    assert len(kernels_of_last_run()) == 1
    assert operators == []


@pytest.mark.parametrize(
    ("structure", "dtype", "cache", "kept"),
    [
        ("sorted_csr", torch.float32, 1 << 10, True),
        ("sorted_csr", torch.float64, 1 << 10, True),
        ("sorted_csr", torch.bfloat16, 1 << 10, False),
        ("own_order", torch.float32, 1 << 10, False),
        ("own_order", torch.float32, 1 << 24, True),
    ],
)
def test_steps_keep_sums(structure, dtype, cache, kept, monkeypatch):
    """They are values between two operators, whether such a call was made before or not, where there is a gradient."""
    monkeypatch.setattr(machine, "last_level_cache_bytes", lambda: cache)
    edges = STRUCTURES[structure]()
    x, y = tensors(edges, "uv", ((16,), (16,)), dtype)
    assert gsb.aggregate(edges.graph, FUSED, [("u", x), ("v", y)]).grad_fn is None
    for _ in range(2):
        out = gsb.aggregate(edges.graph, FUSED, [("u", x), ("v", y.requires_grad_())])
        before = [type(function).__name__ for function, _ in out.grad_fn.next_functions if function is not None]
        assert any(name != "AccumulateGrad" for name in before) is kept


PLANS = [RowPlan(2, 8), RowPlan(1, in_lanes=True), PartitionPlan(2, partitions=3), PartPlan(2, part=8)]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: type(plan).__name__)
def test_plans(plan):
    edges = STRUCTURES["messy"]()
    x, y = tensors(edges, "uv", ((9,), (9,)))
    given = [("u", x), ("v", y)]
    expected = gsb.aggregate(edges.graph, FUSED, given)
    fresh = STRUCTURES["messy"]().graph
    with planned(fresh, message_op(FUSED, ("column", "row"), "sum").kind, 9, torch.float64, plan):
        torch.testing.assert_close(gsb.aggregate(fresh, FUSED, given), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_on_a_gpus_programs(serial_gpu):
    for text, (_, shapes, _) in CASES.items():
        if max(map(len, shapes)) < 3:
            assert_like_torch(STRUCTURES["own_order"](), text, "sum")
    assert "aggregate" in serial_gpu


def test_listed_edges():
    """A graph that nobody has converted is read as it is listed, by one kernel."""
    edges = STRUCTURES["messy"]()
    graph = gsb.Graph._of_list(EdgeList(edges.row, edges.col, edges.graph.shape))
    of = message_op(FUSED, ("column", "row"), "sum")
    x, y = (t.requires_grad_() for t in tensors(edges, "uv", ((17,), (17,))))
    out = aggregate(of, graph, x, y)
    assert graph.listed is not None
    expected = gsb.aggregate(edges.graph, FUSED, [("u", x), ("v", y)])
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    flows = torch.randn(out.shape, dtype=torch.float64)
    for ours, theirs in zip(*(torch.autograd.grad(one, (x, y), flows) for one in (out, expected))):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


def test_special_values_and_edges_of_shapes():
    edges = from_coo([0, 1, 1], [0, 1, 2], (4, 3))
    x = torch.tensor([[1.0, 2.0], [float("nan"), 0.0], [float("inf"), 1.0]])
    y = torch.ones(4, 2)
    out = gsb.aggregate(edges.graph, FUSED, [("u", x), ("v", y)])
    of_edges = dot(x[edges.col], y[edges.row]).sigmoid() * x[edges.col]
    torch.testing.assert_close(out, torch.zeros(4, 2).index_add(0, edges.row, of_edges), equal_nan=True)
    assert out[2:].eq(0).all()
    none = gsb.Graph.from_coo(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), (4, 3))
    assert gsb.aggregate(none, FUSED, [("u", x), ("v", y)]).eq(0).all()
    one = gsb.aggregate(edges.graph, FUSED, [("u", x[:, 1:]), ("v", y[:, 1:])])
    products = dot(x[edges.col, 1:], y[edges.row, 1:]).sigmoid() * x[edges.col, 1:]
    torch.testing.assert_close(one, torch.zeros(4, 1).index_add(0, edges.row, products))


def test_compiled():
    edges = STRUCTURES["messy"]()
    x, y = (t.requires_grad_() for t in tensors(edges, "uv", ((5,), (5,))))

    def run(x, y):
        return gsb.aggregate(edges.graph, FUSED, [("u", x), ("v", y)]).square().sum()

    expected = torch.autograd.grad(run(x, y), (x, y))
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for ours, theirs in zip(torch.autograd.grad(compiled(x, y), (x, y)), expected):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("message", "shapes", "said"),
    [
        ("dot(x0)", ((3,), (3,)), "'dot(x0)' is not a message: dot wants 2 arguments, got 1"),
        ("sum(x0, x1)", ((3,), (3,)), "'sum(x0, x1)' is not a message: sum wants 1 arguments, got 2"),
        ("dod(x0, x1)", ((3,), (3,)), "there is no operator 'dod'; did you mean 'dot'? (the operators are add, sub,"),
        ("mul(sum(x0), sum(x1))", ((), (3,)), "'sum(x0)' has no feature dimension to sum over"),
        ("dot(x0, x1)", ((3,), (4,)), "(3,), (4,) do not broadcast: 3 against 4"),
        ("sum(x0)", ((3,), (3,)), "the message 'sum(x0)' does not read operand x1; leave it out"),
        ("mul(sum(x0), x2)", ((3,), (3,)), "reads x2, but there are 2 operands"),
    ],
)
def test_errors(message, shapes, said):
    edges = STRUCTURES["messy"]()
    x, y = tensors(edges, "uv", shapes)
    with pytest.raises(ValueError, match=re.escape(said)):
        gsb.aggregate(edges.graph, message, [("u", x), ("v", y)])
