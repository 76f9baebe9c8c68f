"""Products of messages, their gradients without a division, and the recurrence that these are made of.

Against ``scatter_reduce`` in float64. Values are powers of two with signs, and zeros: they are exact in every type.
"""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message.programs.aggregate import AggregateSpec
from gnn_sparse_backend.ops.message.programs.message import parse
from gnn_sparse_backend.ops.message.programs.operands import Operand
from gnn_sparse_backend.ops.message.programs.recurrence import RecurrenceSpec
from gnn_sparse_backend.ops.message.reductions import recurrence as module
from gnn_sparse_backend.ops.message.schedules_cuda import aggregate_kernel
from gnn_sparse_backend.planner.cpu.passes import PartitionPlan, PartPlan
from gnn_sparse_backend.planner.cpu.rows import RowPlan
from gnn_sparse_backend.planner.cuda.rows import TeamPlan
from tests.compiler.cuda_code import ARCHITECTURES, check_machine_code, needs_nvcc, source
from tests.ops.message_oracle import DTYPES, EMPTY, LAYOUTS, STRUCTURES, at_edges, from_coo

MESSAGES = {
    "x0": (("u",), lambda x: x),
    "mul(x0, x1)": (("u", "e"), torch.mul),
    "add(x0, x1)": (("v", "u"), torch.add),
    "mul(x0, add(x1, x2))": (("e", "u", "v"), lambda e, u, v: e * (u + v)),
}


def powers(seed: int, *shape: int, zeros: int = 5) -> torch.Tensor:
    """Signed powers of two near one, and every so often a zero."""
    generator = torch.Generator().manual_seed(seed)
    x = 2.0 ** torch.randint(-1, 2, shape, generator=generator).double()
    x = x * (torch.randint(0, 2, shape, generator=generator) * 2 - 1)
    if zeros:
        x.view(-1)[seed % zeros :: zeros] = 0
    return x


def expected(edges, message: torch.Tensor) -> torch.Tensor:
    rows = edges.graph.shape[0]
    index = edges.row.view(-1, *(1,) * (message.dim() - 1)).expand(message.shape)
    return message.new_ones((rows, *message.shape[1:])).scatter_reduce(0, index, message, "prod", include_self=True)


def drawn(edges, places, width: int, zeros: int = 5) -> list[torch.Tensor]:
    rows = {"u": edges.graph.shape[1], "v": edges.graph.shape[0], "e": edges.graph.num_edges}
    return [powers(at, rows[place], width, zeros=zeros) for at, place in enumerate(places)]


def assert_as_scatter_reduce(edges, text: str, width: int, dtype, layout: str = "plain", zeros: int = 5) -> None:
    """Result and the gradients of all operands, those of sums within their rounding."""
    places, function = MESSAGES[text]
    values = [x.requires_grad_() for x in drawn(edges, places, width, zeros)]
    message = function(*(at_edges(edges, place, x, 1) for place, x in zip(places, values)))
    wanted = expected(edges, message)
    operands = [LAYOUTS[layout](x.detach().to(dtype)).requires_grad_() for x in values]
    if layout == "one_row_repeated":
        values = [x.detach().requires_grad_() for x in operands]
        values = [x.double() for x in values]
        message = function(*(at_edges(edges, place, x, 1) for place, x in zip(places, values)))
        wanted = expected(edges, message)
    out = gsb.aggregate(edges.graph, text, list(zip(places, operands)), "prod")
    assert out.dtype == dtype and out.is_contiguous()
    torch.testing.assert_close(out, wanted.to(dtype), rtol=0, atol=0)
    cotangent = powers(9, *out.shape, zeros=0)
    found = torch.autograd.grad(out, operands, cotangent.to(dtype))
    exact = torch.autograd.grad(wanted, values, cotangent)
    for ours, theirs in zip(found, exact):
        torch.testing.assert_close(ours, theirs.to(dtype), rtol=torch.finfo(dtype).eps * 2, atol=1e-6)


@pytest.mark.parametrize("text", MESSAGES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("structure", ["messy", "sorted_csr", "own_order"])
def test_as_scatter_reduce(structure, dtype, text):
    assert_as_scatter_reduce(STRUCTURES[structure](), text, 3, dtype)


@pytest.mark.parametrize("width", [1, 5, 16, 33, 130])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_widths_and_layouts(layout, width):
    assert_as_scatter_reduce(STRUCTURES["messy"](), "mul(x0, x1)", width, torch.float32, layout)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_the_way_to_a_gpu(dtype, serial_gpu):
    for width in (1, 7, 40):
        assert_as_scatter_reduce(STRUCTURES["own_order"](), "mul(x0, x1)", width, dtype)
    assert {"aggregate", "edge_map", "recurrence"} <= set(serial_gpu)


def test_long_rows(set_plan):
    """Of signs alone, so that 20,000 factors stay in range: in parts, in lanes and in partitions."""
    edges = STRUCTURES["hub"]()
    x = (powers(1, 40, 4, zeros=0)).sign().requires_grad_()
    for plan in (RowPlan(2), PartPlan(2, part=64), PartitionPlan(2, partitions=3), RowPlan(2, in_lanes=True)):
        set_plan(plan)
        edges.graph.plans.clear()
        out = gsb.aggregate(edges.graph, "x0", [("u", x)], "prod")
        wanted = expected(edges, x[edges.col])
        assert torch.equal(out, wanted)
        assert gsb.last_run().steps[-1].plan == plan
    torch.testing.assert_close(torch.autograd.grad(out.sum(), x), torch.autograd.grad(wanted.sum(), x))


def test_rows_of_64_bit_indices(set_index_bits):
    set_index_bits(64)
    edges = STRUCTURES["messy"]()
    assert edges.graph.indices.dtype is torch.int64
    assert_as_scatter_reduce(edges, "mul(x0, x1)", 3, torch.float32)


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_is_one(name):
    edges = from_coo(*EMPTY[name])
    x = powers(0, edges.graph.shape[1], 2).requires_grad_()
    out = gsb.aggregate(edges.graph, "x0", [("u", x)], "prod")
    assert torch.equal(out, torch.ones(edges.graph.shape[0], 2, dtype=x.dtype))
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], torch.zeros_like(x))
    assert gsb.aggregate(edges.graph, "x0", [("u", x[:, :0])], "prod").shape == (edges.graph.shape[0], 0)


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_gradients_at_zeros(zeros):
    """None, one, two and all of the factors of a row: the product of the others, whatever a quotient would be."""
    x = torch.tensor([[2.0], [3.0], [5.0]], dtype=torch.float64)
    x[:zeros] = 0
    x.requires_grad_()
    graph = gsb.Graph.from_coo(torch.zeros(3, dtype=torch.int64), torch.arange(3), (1, 3))
    (found,) = torch.autograd.grad(gsb.spmm(graph, x, reduce="prod"), x)
    others = [x.detach()[[b for b in range(3) if b != a]].prod() for a in range(3)]
    assert found.flatten().tolist() == others


def test_a_product_that_overflows_has_gradients_that_do_not():
    x = torch.tensor([[1e200], [1e200], [1e-200]], dtype=torch.float64, requires_grad=True)
    graph = gsb.Graph.from_coo(torch.zeros(3, dtype=torch.int64), torch.arange(3), (1, 3))
    (found,) = torch.autograd.grad(gsb.spmm(graph, x, reduce="prod"), x)
    torch.testing.assert_close(found.flatten()[:2], torch.ones(2, dtype=torch.float64))
    assert found[2].isinf()


def test_nan_and_infinity():
    edges, inf, nan = STRUCTURES["messy"](), float("inf"), float("nan")
    x = powers(3, 13, 2)
    x[1, 0], x[4, 1], x[6] = inf, nan, -inf
    out = gsb.aggregate(edges.graph, "x0", [("u", x)], "prod")
    torch.testing.assert_close(out, expected(edges, x[edges.col]), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("structure", ["messy", "own_order"])
def test_gradcheck(structure):
    edges = STRUCTURES[structure]()
    x, w = (v.requires_grad_() for v in drawn(edges, ("u", "e"), 2, zeros=7))

    def product(x, w):
        return gsb.aggregate(edges.graph, "mul(x0, x1)", [("u", x), ("e", w)], "prod")

    assert torch.autograd.gradcheck(product, (x, w))
    assert torch.autograd.gradgradcheck(product, (x, w), fast_mode=True)


def test_third_derivatives():
    x = torch.tensor([[2.0], [3.0], [5.0], [0.0]], dtype=torch.float64, requires_grad=True)
    graph = gsb.Graph.from_coo(torch.zeros(4, dtype=torch.int64), torch.arange(4), (1, 4))
    found = gsb.spmm(graph, x, reduce="prod").sum()
    for at in (0, 1, 2):
        found = torch.autograd.grad(found, x, create_graph=True)[0][at, 0]
    assert found.item() == 0.0 and torch.autograd.grad(found, x)[0].flatten().tolist() == [0, 0, 0, 1]


def test_the_same_bits_for_any_number_of_threads():
    edges = STRUCTURES["hub"]()
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            out = gsb.spmm(edges.graph, x, reduce="prod")
            found.append((out, *torch.autograd.grad(out.sum(), x)))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) or (a.isnan() == b.isnan()).all() for a, b in zip(*found))


def test_compiled_and_by_segments():
    edges = STRUCTURES["own_order"]()
    x = powers(2, 31, 3).requires_grad_()

    def call(x):
        return gsb.aggregate(edges.graph, "mul(x0, 2)", [("u", x)], "prod")

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), call(x))
    assert torch.equal(*(torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, call)))
    lengths = torch.tensor([2, 0, 3])
    rows = powers(4, 5, 2, zeros=0)
    assert torch.equal(
        gsb.segment_reduce(rows, lengths, "prod"), torch.stack([rows[:2].prod(0), torch.ones(2), rows[2:].prod(0)])
    )


def test_the_recurrence_as_an_operator():
    edges = STRUCTURES["own_order"]()
    graph, x = edges.graph, powers(1, 70, 2).requires_grad_()
    arrays = graph.indptr, graph.indices, graph.edge_ids, graph.shape[1]
    for backwards in (False, True):
        torch.library.opcheck(torch.ops.gsb.recurrence.default, (*arrays, x, None, backwards, False))
        added = powers(5, 70, 2).requires_grad_()
        torch.library.opcheck(torch.ops.gsb.recurrence.default, (*arrays, x, added, backwards, False))
    with pytest.raises(TypeError, match="factor must be float32 or float64, got torch.float16"):
        torch.ops.gsb.recurrence(*arrays, x.half(), None, False, False)
    with pytest.raises(ValueError, match=r"added \(70, 1\) of torch.float64 does not go with factor \(70, 2\)"):
        torch.ops.gsb.recurrence(*arrays, x, x[:, :1], False, False)


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_machine_code(arch):
    """Of a product and of a recurrence: nothing is added atomically, nothing spilled."""
    spec = AggregateSpec(parse("x0"), (Operand("column", (40,), "bfloat16"),), (40,), "bfloat16", reduce="prod")
    recurrence = RecurrenceSpec(40, "float32", "int32", True, True)
    for make in (
        lambda arch: aggregate_kernel(spec, TeamPlan(arch)),
        lambda arch: module._launch.__wrapped__(recurrence, TeamPlan(arch)),
    ):
        text = source(make, arch)
        assert "atomicAdd(" not in text.split('extern "C"')[-1]
        check_machine_code(text, arch)
