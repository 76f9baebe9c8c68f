"""SpMM on locally dense graphs by blocks on Tensor Cores, serially, against dense products in float64."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.formats import BsrFormat, SrBcrsFormat
from gnn_sparse_backend.ops.message.executables.blocks_cuda import dense_blocks, run_blocks
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.planner.cuda import blocks as cuda_bsr
from tests.ops.operators import quarters
from tests.ops.waits import without_waiting

pytestmark = pytest.mark.usefixtures("matmul_precision")


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    """Graphs of few edges count as large."""
    monkeypatch.setattr(cuda_bsr, "LEAST_EDGES", 1)


def local_graph(twice: bool = False, apart: bool = False) -> tuple[gsb.Graph, torch.Tensor, torch.Tensor]:
    """37 x 43: three dense pieces, at the borders of the matrix too, whose edges come in any order; (graph, row,
    column).

    apart: columns that were neighbours are none any more, so that BSR would store too much.
    """
    dense = torch.zeros(37, 43, dtype=torch.bool)
    dense[3:15, 5:14] = dense[34:, 40:] = dense[20, 8:13] = True
    row, col = dense.nonzero().T
    if apart:
        col = col * 7 % 43
    order = torch.randperm(row.numel(), generator=torch.Generator().manual_seed(1))
    row, col = row[order], col[order]
    if twice:
        row, col = torch.cat([row, row[:9]]), torch.cat([col, col[:9]])
    return gsb.Graph.from_coo(row, col, (37, 43)), row, col


@pytest.mark.short(2)
@pytest.mark.parametrize(
    "dtype, width, weighted, reduce, apart",
    [
        (torch.float16, 8, False, "mean", False),
        (torch.bfloat16, 37, True, "sum", False),
        (torch.float32, 76, True, "sum", False),
        (torch.float16, 40, True, "mean", True),
        (torch.float32, 37, False, "sum", True),
    ],
    ids=str,
)
def test_products_and_their_gradients(dtype, width, weighted, reduce, apart, serial_gpu):
    graph, row, col = local_graph(apart=apart)
    x, g = quarters(43, width, dtype=dtype).requires_grad_(), quarters(37, width, dtype=dtype, seed=1)
    weight = quarters(row.numel(), dtype=dtype, seed=2).requires_grad_() if weighted else None
    values = torch.ones(row.numel(), dtype=torch.float64) if weight is None else weight.detach().double()
    dense = torch.zeros(37, 43, dtype=torch.float64).index_put((row, col), values)
    if reduce == "mean":
        dense = dense / torch.bincount(row, minlength=37).clamp(min=1)[:, None]
    out = gsb.spmm(graph, x, weight, reduce)
    assert serial_gpu == ["sr_bcrs_tiles" if apart else "bsr_tiles"]
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), dense @ x.double(), rtol=eps, atol=0 if reduce == "sum" else eps)
    if dtype is torch.bfloat16:
        found = torch.autograd.grad(out, (x, weight), g)
        torch.testing.assert_close(found[0].double(), dense.T @ g.double(), rtol=eps, atol=0)
        torch.testing.assert_close(
            found[1].double(), (g.double()[row] * x.detach().double()[col]).sum(1), rtol=eps, atol=0
        )
        # the rows of the transposed graph have columns apart either way
        assert "sr_bcrs_tiles" in serial_gpu[1:] and "bsr_tiles" not in serial_gpu[1:]


def test_numbers_of_heads(serial_gpu):
    """And the gradient of a mean of them by the features, whose edges have the number of their row beside their own."""
    graph, row, col = local_graph()
    dtype, heads, width = torch.bfloat16, 3, 34
    x, weight = (
        quarters(43, heads, width, dtype=dtype).requires_grad_(),
        quarters(row.numel(), heads, dtype=dtype, seed=2),
    )
    g = quarters(37, heads, width, dtype=dtype, seed=1)
    degree = torch.bincount(row, minlength=37).clamp(min=1)
    dense = torch.zeros(heads, 37, 43, dtype=torch.float64).index_put(
        (torch.arange(heads)[:, None], row, col), weight.double().T
    )
    out = gsb.spmm(graph, x, weight, "mean")
    exact = torch.einsum("hij,jhf->ihf", dense, x.double()) / degree[:, None, None]
    torch.testing.assert_close(out.double(), exact, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)
    (found,) = torch.autograd.grad(out, x, g)
    assert serial_gpu == ["bsr_tiles", "sr_bcrs_tiles"]
    exact = torch.einsum("hij,ihf->jhf", dense / degree[:, None], g.double())
    # numbers are rounded once more, that of a row times that of an edge
    bound = torch.einsum("hij,ihf->jhf", dense.abs() / degree[:, None], g.double().abs())
    assert ((found.double() - exact).abs() <= 0.51 * torch.finfo(dtype).eps * (bound + exact.abs())).all()


@pytest.mark.parametrize("apart", [1, 20], ids=["BSR", "SR-BCRS"])
def test_infinities_stay_with_their_edges(apart, serial_gpu, monkeypatch):
    """A row of a block without an edge to a column that its neighbours have does not meet what is there, nor what is in
    columns that no row has."""
    row, col = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 1, 2, 3]) * apart
    graph = gsb.Graph.from_coo(row, col, (3, 3 * apart + 2))
    monkeypatch.setattr(cuda_bsr, "MOST_STORED", 1000)
    x = torch.full((3 * apart + 2, 9), float("nan"), dtype=torch.float16)
    x[col] = 1.0
    x[0, 1], x[2 * apart, 1], x[3 * apart, 8] = float("inf"), float("nan"), float("-inf")
    out = gsb.spmm(graph, x)
    assert serial_gpu == ["bsr_tiles" if apart == 1 else "sr_bcrs_tiles"]
    expected = torch.tensor([2.0, 2.0, 1.0]).half()[:, None].repeat(1, 9)
    expected[0, 1], expected[1, 1], expected[2, 8] = float("inf"), float("nan"), float("-inf")
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("block, near, apart, thin", [((16, 8), 512, 1792, 1024), ((16, 16), 768, 2048, 1024)])
def test_the_format_that_stores_less_is_taken(block, near, apart, thin):
    """BSR where the columns of a tile are neighbours, SR-BCRS where they lie apart, neither where few rows share them;
    and both are counted."""

    def found(graph):
        blocks = dense_blocks(graph, block)
        assert dense_blocks(graph, block) is blocks
        return type(blocks.stored), blocks.in_sr_bcrs, blocks.in_bsr

    assert found(local_graph()[0]) == (BsrFormat, near, near)
    assert found(local_graph(apart=True)[0]) == (SrBcrsFormat, near, apart)
    assert found(gsb.Graph.from_coo(torch.arange(64), torch.arange(64) * 7 % 64, (64, 64))) == (type(None), thin, 0)
    # a ninth more is stored for what reading indices costs
    assert cuda_bsr.most_in_bsr(1000, 900) == 1000 and cuda_bsr.most_in_bsr(100, 790) == 800


def test_what_blocks_are_not_for(monkeypatch):
    """Graphs whose blocks are empty for the most part, few edges, narrow rows, full precision, other sums and types,
    old GPUs.
    """
    thin = gsb.Graph.from_coo(torch.arange(64), torch.arange(64) * 7 % 64, (64, 64))
    graph, row, _ = local_graph()
    x, wide = torch.ones(43, 16), torch.ones(64, 48)
    copy, largest = message_op("x0", ("column",), "sum"), message_op("x0", ("column",), "max", "last")
    refused = [
        (copy, thin, wide, "sm_90"),
        (copy, graph, x[:, :4], "sm_90"),
        (copy, graph, x.double(), "sm_90"),
        (copy, graph, x, "sm_75"),
        (largest, graph, x, "sm_90"),
        (message_op("x0", ("edge",), "sum"), graph, torch.ones(row.numel(), 16), "sm_90"),
    ]
    for of, on, operand, arch in refused:
        assert run_blocks(of, on, [operand], arch) is None
    product = message_op("mul(x0, x1)", ("column", "edge"), "sum")
    assert (
        run_blocks(product, graph, [wide[:43], torch.ones(row.numel(), 48)], "sm_90") is None
    )  # a weight for each feature
    assert run_blocks(product, graph, [x, torch.ones(row.numel(), 1)], "sm_90") is None  # few features for each number
    assert (
        run_blocks(
            message_op("add(x0, x1)", ("column", "edge"), "sum"),
            graph,
            [wide[:43], torch.ones(row.numel(), 1)],
            "sm_90",
        )
        is None
    )
    torch.set_float32_matmul_precision("highest")
    assert run_blocks(copy, graph, [x], "sm_90") is None
    torch.set_float32_matmul_precision("high")
    monkeypatch.setattr(cuda_bsr, "LEAST_EDGES", row.numel() + 1)
    assert run_blocks(copy, graph, [x], "sm_90") is None


def test_edges_that_repeat(serial_gpu):
    """Are counted; their weights would be added in no order, so that they go to the kernels that know one."""
    graph, row, col = local_graph(twice=True)
    x = quarters(43, 8, dtype=torch.float16)
    dense = torch.zeros(37, 43, dtype=torch.float64).index_put(
        (row, col), torch.ones(row.numel(), dtype=torch.float64), accumulate=True
    )
    torch.testing.assert_close(gsb.spmm(graph, x).double(), dense @ x.double(), rtol=1e-3, atol=0)
    assert serial_gpu == ["bsr_tiles"]
    copy, product = message_op("x0", ("column",), "sum"), message_op("mul(x0, x1)", ("column", "edge"), "sum")
    x = quarters(43, 32, dtype=torch.float16)
    assert run_blocks(product, graph, [x, torch.ones(row.numel(), 1, dtype=torch.float16)], "serial") is None
    for edges, taken in ((256, True), (257, False)):  # bfloat16 counts to 256
        many = gsb.Graph.from_coo(*torch.zeros(2, edges, dtype=torch.int64), (1, 1))
        assert (run_blocks(copy, many, [quarters(1, 8, dtype=torch.bfloat16)], "serial") is not None) == taken


@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_call_on_a_graph_waits_once(weighted, serial_gpu, monkeypatch):
    """For all that decides between the formats, and for what numbers of edges want to know of them."""
    graph, row, _ = local_graph()
    operands = [quarters(43, 32, dtype=torch.float16)] + [quarters(row.numel(), 1, dtype=torch.float16)] * weighted
    of = message_op("mul(x0, x1)", ("column", "edge"), "sum") if weighted else message_op("x0", ("column",), "sum")
    expected = run_blocks(of, graph, operands, "serial")[0]  # compiles
    again = local_graph()[0]
    assert torch.equal(
        without_waiting(lambda: run_blocks(of, again, operands, "serial")[0], monkeypatch, sizes=1), expected
    )


def test_a_call_on_a_known_graph_reads_nothing_back(serial_gpu, monkeypatch):
    graph, row, _ = local_graph()
    x, weight = quarters(43, 32, dtype=torch.float16), quarters(row.numel(), dtype=torch.float16)
    expected = gsb.spmm(graph, x, weight)

    def refuse(*_):
        raise AssertionError("a value was read back")

    with monkeypatch.context() as patch:
        for name in ("item", "__bool__", "__int__", "__index__", "__float__", "tolist", "nonzero", "cpu", "numpy"):
            patch.setattr(torch.Tensor, name, refuse)
        found = gsb.spmm(graph, x, weight)
    assert torch.equal(found, expected)


def test_numbers_may_change_from_call_to_call(serial_gpu):
    """In place too, behind autograd's back: what is kept with the graph is where they go, in whatever order edges are
    numbered.
    """
    graph, row, col = local_graph()
    assert graph.edge_ids is not None
    x, weight = quarters(43, 32, dtype=torch.float16), quarters(row.numel(), dtype=torch.float16, seed=2)
    first = gsb.spmm(graph, x, weight)
    weight.data.mul_(-2)
    assert torch.equal(gsb.spmm(graph, x, weight), -2 * first) and first.count_nonzero() > 100
    dense = torch.zeros(37, 43, dtype=torch.float64).index_put((row, col), weight.double())
    torch.testing.assert_close(-2 * first.double(), dense @ x.double(), rtol=1e-3, atol=0)


def test_the_gradient_of_a_mean_has_numbers_at_rows_alone(serial_gpu):
    graph, row, col = local_graph()
    x, g = quarters(43, 32, dtype=torch.bfloat16).requires_grad_(), quarters(37, 32, dtype=torch.bfloat16, seed=1)
    (found,) = torch.autograd.grad(gsb.spmm(graph, x, reduce="mean"), x, g)
    assert serial_gpu == ["bsr_tiles", "sr_bcrs_tiles"]
    degree = torch.bincount(row, minlength=37).clamp(min=1)
    dense = torch.zeros(37, 43, dtype=torch.float64).index_put((row, col), 1 / degree[row].double())
    exact, bound = dense.T @ g.double(), dense.T @ g.double().abs()
    eps = torch.finfo(torch.bfloat16).eps  # of the result, and of the number of each row
    assert ((found.double() - exact).abs() <= 0.51 * eps * (bound + exact.abs())).all()
