"""Relational products in one pass, by blocks that own rows, serialised on the CPU, against products in float64.
(`test_ops_cuda_any_widths` and `test_ops_devices` have those that store products of pairs.)"""

from __future__ import annotations

from functools import partial

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.ops.relational import orders_cuda
from gnn_sparse_backend.ops.relational import orders_cuda as cuda_rgms_orders
from gnn_sparse_backend.ops.relational import schedules_cuda as planned
from gnn_sparse_backend.ops.relational.schedules_cuda_rows import ProductShape
from gnn_sparse_backend.planner.cpu.relational import RelationCounts
from gnn_sparse_backend.planner.cuda.cost import NEARER
from gnn_sparse_backend.runtime import layout
from tests.compiler.cuda_batches import sources
from tests.ops.serial_gpu import cut_rows_short

TYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


SHAPE = 150, 70
"""Of all structures, so that few kernels are made."""


def triples(count: int, relations: int):
    """(source, destination, relation): edges that repeat, and one relation, the last row and the last columns without
    any.
    """
    generator = torch.Generator().manual_seed(0)
    rows, columns = SHAPE
    source, destination, relation = (
        torch.randint(0, n, (count,), generator=generator) for n in (columns - 3, rows - 1, relations)
    )
    relation[relation == 1] = 0
    again = count // 8
    return tuple(torch.cat([t, t[:again]]) for t in (source, destination, relation))


def exact(edges, rows: int, x, w, a, reduce: str) -> torch.Tensor:
    """The product in float64. w: (relations, blocks, F_in, F_out)."""
    source, destination, relation = edges
    terms = torch.einsum("edf,edfk->edk", x[source].unflatten(1, w.shape[1:3]), w[relation]).flatten(1)
    terms = terms if a is None else terms * a[:, None]
    if reduce == "mean":
        key = relation * rows + destination
        terms = terms / torch.bincount(key)[key][:, None]
    return torch.zeros(rows, terms.shape[1], dtype=torch.float64).index_add(0, destination, terms)


def close(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    bound = 16 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), expected, rtol=bound, atol=bound * max(1.0, float(expected.abs().max())))


def operands(edges, relations: int, widths, blocks: int) -> tuple[torch.Tensor, torch.Tensor, torch.Generator]:
    """x, w, and the generator that they were drawn by. A relation without edges and columns that no edge names are
    NaN.
    """
    (inner, outer), (_, columns) = widths, SHAPE
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(columns, blocks * inner, generator=generator)
    w = torch.randn(relations, blocks, inner, outer, generator=generator)
    x[torch.isin(torch.arange(columns), edges[0], invert=True)] = torch.nan
    w[torch.isin(torch.arange(relations), edges[2], invert=True)] = torch.nan
    return x, w, generator


def check(
    launched,
    edges,
    relations: int,
    dtype=torch.float16,
    widths=(16, 24),
    blocks: int = 1,
    reduce: str = "mean",
    weighted: bool = False,
) -> tuple[list[str], list[str]]:
    """Both directions. A relation without edges and rows that no edge names are NaN, and reach nothing. Gives what
    either launched.
    """
    rows, _ = SHAPE
    x, w, generator = operands(edges, relations, widths, blocks)
    a = torch.randn(edges[0].numel(), generator=generator).to(dtype) if weighted else None
    x, w = x.to(dtype).requires_grad_(), w.to(dtype)
    rel = gsb.RelGraph.from_triples(*edges, SHAPE, relations)
    launched.clear()
    out = gsb.rgms(rel, x, w, edge_weight=a, reduce=reduce)
    forward = list(launched)
    precise = x.detach().double().requires_grad_()
    expected = exact(edges, rows, precise, w.double(), None if a is None else a.double(), reduce)
    assert out.dtype == dtype and out.is_contiguous() and out.shape == expected.shape
    assert not out._is_view(), "layers may write into it"
    close(out, expected.detach(), dtype)
    cotangent = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    launched.clear()
    (grad,) = torch.autograd.grad(out.double(), x, cotangent)
    (wanted,) = torch.autograd.grad(expected, precise, cotangent)
    close(grad, wanted, dtype)
    return forward, list(launched)


@pytest.fixture
def by(monkeypatch, owned_rows, matmul_precision):
    """Has all products made in the order that it is called with; gives the names of what is launched."""

    def choose(order: str):
        monkeypatch.setattr(orders_cuda, "bytes_of_orders", lambda *asked: {order: 0.0})
        return owned_rows

    return choose


CASES = [  # dtype, widths, blocks, reduce, weighted
    (torch.float16, (16, 24), 1, "mean", False),
    (torch.bfloat16, (5, 11), 2, "mean", True),
    (torch.float32, (12, 3), 1, "sum", True),
]


@pytest.mark.short(1)
@pytest.mark.parametrize("dtype, widths, blocks, reduce, weighted", CASES, ids=lambda x: TYPES.get(x))
def test_both_directions(dtype, widths, blocks, reduce, weighted, by):
    """Each is one launch of one kernel."""
    forward, backward = check(by("rows"), triples(400, 5), 5, dtype, widths, blocks, reduce, weighted)
    assert forward == backward == ["rgms_rows"]


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "widths, blocks, reduce, weighted",
    [((16, 24), 1, "mean", False), ((5, 11), 2, "sum", True), ((4, 1), 1, "sum", False)],
)
def test_both_directions_in_full_precision(widths, blocks, reduce, weighted, by):
    torch.set_float32_matmul_precision("highest")
    forward, backward = check(by("rows"), triples(400, 5), 5, torch.float32, widths, blocks, reduce, weighted)
    assert forward == backward == ["rgms_rows"]


LAYOUTS = {
    "by rows": lambda w: w,
    "by columns": lambda w: w.transpose(2, 3).contiguous().transpose(2, 3),
    "neither": lambda w: torch.stack([w, torch.full_like(w, torch.nan)], -1)[..., 0],
}


@pytest.mark.short(2)
@pytest.mark.parametrize(
    "order, dtype, widths, precision",
    [
        ("rows", torch.float16, (16, 24), "high"),
        ("rows", torch.float32, (6, 5), "high"),
        ("rows", torch.float32, (6, 5), "highest"),
        ("tiles", torch.float16, (16, 24), "high"),
        ("transform", torch.float16, (16, 24), "high"),
        ("transform", torch.float32, (6, 5), "highest"),
    ],
    ids=lambda value: TYPES.get(value),
)
def test_matrices_are_taken_as_they_are_stored(order, dtype, widths, precision, by, monkeypatch):
    """By rows, or by columns as gradients have them: nothing copies them; a view that is neither is copied."""
    torch.set_float32_matmul_precision(precision)
    by(order)
    edges = triples(400, 5)
    x, w, _ = operands(edges, 5, widths, 2 if order == "rows" else 1)
    x, w = x.to(dtype), w.to(dtype)
    rel, expected = (
        gsb.RelGraph.from_triples(*edges, SHAPE, 5),
        exact(edges, SHAPE[0], x.double(), w.double(), None, "sum"),
    )
    copied, compact = [], layout.compact

    def noted(name, tensor):
        if not tensor.is_contiguous():
            copied.append(name)
        return compact(tensor)

    for name, stored in LAYOUTS.items():
        given = stored(w)
        assert torch.equal(given.nan_to_num(), w.nan_to_num())
        with monkeypatch.context() as patch:
            patch.setattr(layout, "compact", partial(noted, name))
            out = gsb.rgms(rel, x, given)
        close(out, expected, dtype)
    assert copied == ["neither"]


@pytest.mark.parametrize("relations, edges", [(1, 300), (1000, 500), (3, 1)])
def test_numbers_of_relations(relations, edges, by):
    assert check(by("rows"), triples(edges, relations), relations)[0] == ["rgms_rows"]


def test_a_hub_is_cut_into_parts(by, monkeypatch):
    """Rows of more edges than a block should wait for go in parts, which are added up in float32; the others are stored
    in place.
    """
    cut_rows_short(monkeypatch, 30, 8)
    source, destination, relation = triples(500, 4)
    destination = torch.where(torch.arange(destination.numel()) % 3 == 0, 7, destination)
    forward, _ = check(by("rows"), (source, destination, relation), 4)
    assert forward == ["rgms_rows", "aggregate"]


def test_what_a_row_has_no_edges_of_does_not_reach_it(by):
    """Inf in the matrix of a relation, and in a row of x: rows that have edges of the one or the other are not finite,
    others are.
    """
    by("rows")
    source, destination, relation = triples(400, 5)
    rel = gsb.RelGraph.from_triples(source, destination, relation, SHAPE, 5)
    x, w = torch.ones(70, 16, dtype=torch.float16), torch.ones(5, 16, 24, dtype=torch.float16)
    w[3], x[9] = torch.inf, torch.nan
    out = gsb.rgms(rel, x, w, reduce="mean")
    met = torch.zeros(150, dtype=torch.bool)
    met[destination[(relation == 3) | (source == 9)]] = True
    assert (
        0 < met.sum() < 150
        and torch.equal(~torch.isfinite(out).all(1), met)
        and torch.equal(~torch.isfinite(out).any(1), met)
    )


def test_deterministic_algorithms_change_nothing(by):
    """No order of a product adds atomically, so there is nothing to leave out: the same kernels, the same bits."""
    source, destination, relation = triples(400, 5)
    rel = gsb.RelGraph.from_triples(source, destination, relation, SHAPE, 5)
    x, w = torch.randn(70, 16, dtype=torch.float16), torch.randn(5, 16, 24, dtype=torch.float16)
    results, names = [], []
    for deterministic in (False, True):
        launched = by("rows")
        launched.clear()
        torch.use_deterministic_algorithms(deterministic)
        try:
            results.append(gsb.rgms(rel, x, w, reduce="mean"))
        finally:
            torch.use_deterministic_algorithms(False)
        names.append(tuple(launched))
    assert names[0] == names[1] == ("rgms_rows",) and torch.equal(*results)


def test_the_planner_takes_rows_where_they_move_less(owned_rows, matmul_precision):
    """On a graph whose tiles have few relations each; the structure is made once, and not kept where it was only
    counted.
    """
    generator = torch.Generator().manual_seed(0)
    destination, source = (torch.randint(0, 500, (4000,), generator=generator) for _ in range(2))
    few, many = destination % 4, torch.randint(0, 400, (4000,), generator=generator)
    x = torch.randn(500, 16, dtype=torch.float16)
    for relation, order in ((few, "rows"), (many, "transform")):
        rel = gsb.RelGraph.from_triples(source, destination, relation, (500, 500), 400)
        owned_rows.clear()
        gsb.rgms(rel, x, torch.randn(400, 16, 24, dtype=torch.float16), reduce="mean")
        moved = cuda_rgms_orders.bytes_of_orders(rel, False, ProductShape(16, 24, "float16", "serial"))
        assert planned.order_of(moved) == order and ("rgms_rows" in owned_rows) == (order == "rows")
        kept = [fact for fact in rel.side(False).facts if isinstance(fact, cuda_rgms_orders.TilesOfRows)]
        assert len(kept) == (order == "rows")
        found = gsb.explain(rel, "rgms", (16, 24), dtype="float16")
        assert found.order == order and found.moved == moved
        text = " ".join(str(found).split())
        assert (
            f"one order serves all relations: {order}, which moves fewest bytes" in text
            and "nothing is added atomically" in text
        )


def test_full_precision_goes_by_rows_or_columns(owned_rows, matmul_precision):
    """Also on a GPU that has no Tensor Cores for it."""
    torch.set_float32_matmul_precision("highest")
    rel = gsb.RelGraph.from_triples(*triples(400, 5), SHAPE, 5)
    for arch in ("sm_75", "sm_90"):
        assert set(
            cuda_rgms_orders.bytes_of_orders(rel, False, cuda_rgms_orders.shape_of(1, 16, 24, torch.float32, arch))
        ) == {"transform", "rows"}
    assert "multiplied in full precision" in " ".join(str(gsb.explain(rel, "rgms", (16, 24))).split())
    torch.set_float32_matmul_precision("high")
    assert set(
        cuda_rgms_orders.bytes_of_orders(rel, False, cuda_rgms_orders.shape_of(1, 16, 24, torch.float32, "sm_90"))
    ) == {
        "transform",
        "tiles",
        "rows",
    }
    assert "full precision" not in str(gsb.explain(rel, "rgms", (16, 24)))


def test_bytes_are_counted():
    """10 edges of 16 features to 8 of 16 bits, by hand; 2,000 blocks of rows."""
    spec = planned.rows_spec(ProductShape(16, 8, "float16", "sm_90"))
    counts = RelationCounts(2000 * spec.rows, 10, 8, 6)
    moved = planned.order_bytes(counts, ProductShape(16, 8, "float16", "sm_90"), panels=5)
    result, matrix = counts.rows * 16, 256 / NEARER
    assert moved == pytest.approx(
        {
            "rows": 320 + 5 * matrix + result,
            "tiles": 320 + 8 * 32 + 8 / 32 * matrix + result,
            "transform": 6 * 48 + 6 / 32 * matrix + 160 + result,
        }
    )
    # in full precision: where multiplying takes longer, that counts; a block multiplies all its rows by all columns it
    # could have
    full = planned.rows_spec(ProductShape(16, 8, "float32", "sm_90", full=True))
    moved = planned.order_bytes(
        RelationCounts(2000 * full.rows, 10, 8, 6), ProductShape(16, 8, "float32", "sm_90", full=True), panels=500_000
    )
    assert moved["rows"] == 500_000 * full.rows * full.width * 16 / planned.MULTIPLIED and set(moved) == {
        "rows",
        "transform",
    }
    few = RelationCounts(100 * spec.rows, 10, 8, 6)
    assert "rows" not in planned.order_bytes(
        few, ProductShape(16, 8, "float16", "sm_90")
    )  # blocks that would leave most of a GPU idle
    assert planned.order_of({"rows": 1.0, "tiles": 1.0, "transform": 2.0}) == "rows"


def test_the_code_of_default_plans(owned_rows, recorded_gpu, matmul_precision):
    """Both directions launch one kernel of one program, with ``mma`` and without atomics; `test_cuda_plans` has what
    ptxas says of it.
    """
    source = torch.arange(4000)
    rel = gsb.RelGraph.from_triples(source, source % 500, torch.zeros_like(source), (500, 4000), 1)
    for dtype, instruction in (
        (torch.bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32"),
        (torch.float32, "m16n8k8.row.col.f32.tf32.tf32.f32"),
    ):
        x = torch.randn(4000, 48, dtype=dtype, requires_grad=True)
        recorded_gpu.clear()
        out = gsb.rgms(rel, x, torch.randn(1, 48, 36, dtype=dtype))
        torch.autograd.grad(out.sum(), x)
        launched = list(recorded_gpu.values())
        assert [program.name for program, _ in launched] == ["rgms_rows"] * 2
        for text in sources({f"turn_{turn}": stage3(*one) for turn, one in enumerate(launched)}).values():
            kernel = text.split('extern "C"')[-1]
            assert (
                f"mma.sync.aligned.{instruction}" in kernel and "atomic" not in kernel and text.count("__global__") == 1
            )
