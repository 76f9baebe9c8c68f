"""Gradients whose kernels cannot be had: PyTorch's functions compute them, and they are what kernels compute."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.cache import KernelStore
from gnn_sparse_backend.compiler.cache.bounded import forget
from gnn_sparse_backend.compiler.own_schedules import in_force
from gnn_sparse_backend.compiler.packs.errors import NoKernelError, NoKernelWarning
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.ops.eager.messages import aggregate_with_choice
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.ops.message.operators import AGGREGATE
from gnn_sparse_backend.runtime import without_kernels
from tests.ops.differentiated import CASES
from tests.ops.operators import OPERATORS, RGMS, ROUNDING, some_graph

SECOND = (
    *("spmm_weighted_mean", "gspmm_mul_max", "attention", "edge_softmax", "rgms_weighted", "segment_mm"),
    *("masked_sddmm", "composed_spmm"),
)


@pytest.fixture
def lose_kernels(monkeypatch) -> Callable[[], None]:
    """From when it is called on there is none, as where a disk is full, or TVM and the pack are missing."""

    def refuse(*wanted, **named):
        raise NoKernelError("there is no room")

    def lose() -> None:
        monkeypatch.setattr(KernelStore, "get", refuse)
        forget()
        in_force.renew()

    reset_status()
    yield lose
    reset_status()


def likes(out: Tensor) -> Tensor:
    return torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)


@pytest.mark.parametrize("name", CASES)
def test_every_gradient(name, lose_kernels):
    function, operands = CASES[name]
    operands = [x.clone().requires_grad_() for x in operands]
    out = function(*operands)
    expected = torch.autograd.grad(out, operands, likes(out), retain_graph=True)
    lose_kernels()
    with pytest.warns(NoKernelWarning, match="no room. Until then PyTorch's own functions compute compiled programs"):
        found = torch.autograd.grad(out, operands, likes(out))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-9)
    assert sum(without_kernels.counts().values()) > 0
    with pytest.raises(NoKernelError, match="there is no room"):
        function(*operands)


@pytest.mark.parametrize("name", SECOND)
def test_a_gradient_of_a_gradient(name, lose_kernels):
    function, operands = CASES[name]
    operands = [x.clone().requires_grad_() for x in operands]
    out = function(*operands)

    def twice() -> tuple[Tensor, ...]:
        once = torch.autograd.grad(out, operands, likes(out), create_graph=True)
        total = sum((x * likes(x) * x).sum() for x in once)
        return torch.autograd.grad(total, operands, retain_graph=True)

    expected = twice()
    lose_kernels()
    with pytest.warns(NoKernelWarning):
        torch.testing.assert_close(twice(), expected, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["spmm_weighted_mean", "gspmm_copy_u_max", "gat_attention", "rgms_mean", "gather_mm"])
def test_types(name, dtype, lose_kernels):
    """On a graph with rows without edges, and edges in an order of their own."""
    graph = some_graph()
    if name in RGMS:
        graph = gsb.RelGraph.from_graph(graph, torch.arange(graph.num_edges) % 3, 4)
    of = {**OPERATORS, **RGMS}[name]
    torch.manual_seed(0)
    operands = of.operands(graph, dtype)
    out = of.run(graph, *operands)
    expected = torch.autograd.grad(out, operands, likes(out), retain_graph=True)
    lose_kernels()
    with pytest.warns(NoKernelWarning):
        found = torch.autograd.grad(out, operands, likes(out))
    assert [x.dtype for x in found] == [dtype] * len(operands)
    torch.testing.assert_close(found, expected, atol=ROUNDING[dtype], rtol=ROUNDING[dtype])


@pytest.mark.filterwarnings("ignore::gnn_sparse_backend.compiler.packs.errors.NoKernelWarning")
@pytest.mark.parametrize("edges", [0, 1])
def test_graphs_of_hardly_an_edge(edges, lose_kernels):
    graph = gsb.Graph.from_coo(torch.arange(edges), torch.arange(edges), (3, 2))
    x = torch.ones(2, 1, requires_grad=True)
    w = torch.full((edges, 1), 2.0, requires_grad=True)
    y = gsb.gspmm(graph, "mul", "prod" if edges else "sum", x, w)
    lose_kernels()
    y.sum().backward()
    assert x.grad.tolist() == [[2.0], [0.0]] if edges else [[0.0], [0.0]]
    assert w.grad.shape == (edges, 1) and bool((w.grad == 1).all())


def test_what_nothing_else_defines_is_an_error(lose_kernels):
    """A gradient of a tensor expression is another expression, of formats that PyTorch has no functions for."""
    a = gsb.tensor.array(torch.eye(4), "csr")
    y = gsb.tensor.evaluate("y[i] = A[i,j] * x[j]", A=a, x=torch.ones(4, requires_grad=True)).to_torch()
    lose_kernels()
    with pytest.raises(NoKernelError, match="there is no room"):
        y.sum().backward()
    assert without_kernels.counts() == {}


def test_compiled_programs(lose_kernels):
    """A maximum, whose gradient is shared out, and a product with a weight of each edge."""
    graph = some_graph()
    x = torch.randn(graph.shape[1], 4, dtype=torch.float64, requires_grad=True)
    w = torch.rand(graph.num_edges, 1, dtype=torch.float64, requires_grad=True)

    def program(x: Tensor, w: Tensor) -> Tensor:
        return gsb.aggregate(graph, "mul(x0, x1)", [("u", x), ("e", w)], "max") + gsb.spmm(graph, x, w[:, 0])

    expected = torch.autograd.grad(program(x, w), (x, w), torch.ones(graph.shape[0], 4, dtype=torch.float64))
    out = torch.compile(program, backend="aot_eager")(x, w)
    lose_kernels()
    with pytest.warns(NoKernelWarning, match="PyTorch's own functions compute compiled programs"):
        found = torch.autograd.grad(out, (x, w), torch.ones_like(out))
    torch.testing.assert_close(found, expected)


PROGRAMS = (
    *("spmm_weighted_mean", "gspmm_copy_u_max", "gspmm_last_max", "attention", "edge_softmax", "rgms_mean"),
    *("segment_mm", "sparse_conv", "sparse_attention", "composed_spmm", "prod"),
)


@pytest.mark.short(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_passes_of_compiled_programs(name, lose_kernels):
    """There is no framework behind them to leave a call to."""
    function, operands = CASES[name]
    operands = [x.clone().requires_grad_() for x in operands]
    out = function(*operands)
    expected = torch.autograd.grad(out, operands, likes(out))
    lose_kernels()
    with pytest.warns(NoKernelWarning, match="no room. Until then PyTorch's own functions compute compiled programs"):
        found = torch.compile(function, backend="aot_eager")(*operands)
        gradients = torch.autograd.grad(found, operands, likes(found))
    torch.testing.assert_close(found, out, atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(gradients, expected, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("ties", ["last", "first"])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_which_of_equal_messages_is_chosen_without_kernels(reduce, ties, lose_kernels):
    """By the order of the non-zeros, among NaN and infinities, and rows without edges."""
    graph = some_graph()
    x = torch.randint(-1, 2, (graph.shape[1], 4)).double()
    x[::3] = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0])
    of = message_op("x0", ("column",), reduce, ties)
    expected = AGGREGATE.library(graph, (x,), (of,))
    lose_kernels()
    found = aggregate_with_choice(graph, (x,), (of,))
    torch.testing.assert_close(found, tuple(expected), equal_nan=True)


@pytest.mark.parametrize("rectified", [False, True])
def test_dropouts_of_programs_draw_the_same(rectified, lose_kernels):
    x = torch.randn(40, 5, dtype=torch.float64, requires_grad=True)

    def program(x: Tensor) -> Tensor:
        return torch.ops.gsb.dropped(x, 0.4, 0, rectified)[0]

    torch.manual_seed(3)
    out = program(x)
    expected = torch.autograd.grad(out, x, torch.ones_like(out))
    lose_kernels()
    torch.manual_seed(3)
    with pytest.warns(NoKernelWarning):
        found = program(x)
        gradients = torch.autograd.grad(found, x, torch.ones_like(found))
    torch.testing.assert_close((found, *gradients), (out, *expected))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("heads", [1, 4])
def test_masks(heads, padded, lose_kernels):
    """Masks have several heads and sequences, with keys that are not there and a dropout."""
    torch.manual_seed(0)
    allowed = torch.rand(heads, 9, 7) < 0.5
    allowed[:, 2] = False  # a query without keys
    mask = gsb.masks.from_dense(allowed, block=4, of="heads")
    if padded:
        mask = mask & gsb.masks.padding(torch.arange(7) < torch.tensor([[5], [7]]))
    q, k, v = (torch.randn(2, 4, rows, 3, dtype=torch.float64, requires_grad=True) for rows in (9, 7, 7))
    out = gsb.sparse_attention(q, k, v, mask, dropout=0.3)
    expected = torch.autograd.grad(out, (q, k, v), likes(out), retain_graph=True)
    a = torch.randn(2, 4, 9, 2, dtype=torch.float64, requires_grad=True)
    values = gsb.masked_sddmm(mask, a, k[..., :2])
    sums = gsb.masked_spmm(mask, values, v)
    of_sums = torch.autograd.grad(sums, (a, k, v), likes(sums), retain_graph=True)
    lose_kernels()
    with pytest.warns(NoKernelWarning):
        torch.testing.assert_close(torch.autograd.grad(out, (q, k, v), likes(out)), expected, equal_nan=False)
        torch.testing.assert_close(torch.autograd.grad(sums, (a, k, v), likes(sums)), of_sums)


@pytest.mark.parametrize("returns_lse", [False, True])
def test_scores_that_a_function_changes(returns_lse, lose_kernels):
    """Those of ``flex_attention``, with a bias that gets a gradient, and logarithms that have one."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 9, 4, requires_grad=True) for _ in range(3))
    bias = torch.randn(2, 9, requires_grad=True)
    found = gsb.flex_attention(q, k, v, lambda score, b, h, i, j: score + bias[h, j] * (b + 1), return_lse=returns_lse)
    outs = found if returns_lse else (found,)
    expected = torch.autograd.grad(outs, (q, k, v, bias), [likes(x) for x in outs], retain_graph=True)
    lose_kernels()
    with pytest.warns(NoKernelWarning):
        again = torch.autograd.grad(outs, (q, k, v, bias), [likes(x) for x in outs])
    torch.testing.assert_close(again, expected)


@pytest.mark.slow
def test_flex_attention_of_compiled_programs(lose_kernels):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 9, 4, requires_grad=True) for _ in range(3))

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.nn.attention.flex_attention.flex_attention(q, k, v, lambda score, b, h, i, j: score + (i - j) * h)

    with gsb.enabled("flex_attention"):
        out = program(q, k, v)
        expected = torch.autograd.grad(out, (q, k, v), likes(out))
        lose_kernels()
        with pytest.warns(NoKernelWarning):
            found = torch.compile(program, backend="aot_eager", fullgraph=True)(q, k, v)
            gradients = torch.autograd.grad(found, (q, k, v), likes(found))
    torch.testing.assert_close((found, *gradients), (out, *expected))


def test_they_are_counted_with_the_reason(lose_kernels):
    x = torch.ones(12, 5, requires_grad=True)
    y = gsb.spmm(some_graph(), x)
    lose_kernels()
    with pytest.warns(NoKernelWarning):
        y.sum().backward()
    (row,) = gsb.status().rows
    assert (row.framework, row.operator, row.ours) == ("torch", "aggregate backward", 0)
    assert row.fallbacks == {"no kernel can be made or loaded here, see gsb doctor": 1}
    assert "aggregate backward" in str(gsb.status())
    reset_status()
    assert gsb.status().rows == ()
