"""Gradients of relational products to the numbers of edges in one pass, by blocks that own rows, serialised on the CPU,
against float64.
"""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.relational import orders_cuda
from gnn_sparse_backend.ops.relational import orders_cuda as cuda_rgms_orders
from gnn_sparse_backend.ops.relational import schedules_cuda as planned
from gnn_sparse_backend.ops.relational.schedules_cuda_rows import ProductShape
from gnn_sparse_backend.planner.cpu.relational import RelationCounts
from gnn_sparse_backend.planner.cuda.cost import NEARER
from tests.ops.relational.test_rows_cuda import SHAPE, close, operands, triples
from tests.ops.serial_gpu import cut_rows_short

CASES = [  # dtype, precision, widths, blocks, reduce, fewer pairs of columns
    (torch.float16, "high", (16, 24), 1, "mean", False),
    (torch.bfloat16, "high", (11, 5), 2, "sum", True),
    (torch.float32, "high", (12, 3), 1, "sum", True),
    (torch.float32, "highest", (16, 40), 1, "mean", False),
    (torch.float32, "highest", (5, 6), 2, "sum", True),
    (torch.float32, "highest", (1, 1), 1, "sum", False),
]


@pytest.fixture
def launched(monkeypatch, owned_rows, matmul_precision):
    """Names of what is launched, where dots go by blocks that own rows."""
    monkeypatch.setattr(orders_cuda, "bytes_of_dots", lambda *asked: {"rows": 0.0})
    return owned_rows


def gradient(launched, edges, relations: int, dtype, widths, blocks: int = 1, reduce: str = "sum") -> list[str]:
    """Names of what the gradient to the edges' numbers launches. A relation without edges and columns that no edge
    names are NaN.
    """
    (inner, outer), (rows, _) = widths, SHAPE
    x, w, generator = operands(edges, relations, widths, blocks)
    a = torch.randn(edges[0].numel(), generator=generator).to(dtype).requires_grad_()
    x, w, g = x.to(dtype), w.to(dtype), torch.randn(rows, blocks * outer, generator=generator).to(dtype)
    rel = gsb.RelGraph.from_triples(*edges, SHAPE, relations)
    out = gsb.rgms(rel, x, w, edge_weight=a, reduce=reduce)
    launched.clear()
    (found,) = torch.autograd.grad(out, a, g)
    source, destination, relation = edges
    exact = torch.einsum(
        "edf,edfk,edk->e",
        x.double()[source].unflatten(1, (blocks, inner)),
        w.double()[relation],
        g.double()[destination].unflatten(1, (blocks, outer)),
    )
    if reduce == "mean":
        key = relation * rows + destination
        exact = exact / torch.bincount(key)[key]
    assert found.dtype == dtype and torch.isfinite(found).all()
    close(found, exact, dtype)
    return list(launched)


@pytest.mark.short(3)
@pytest.mark.parametrize("dtype, precision, widths, blocks, reduce, by_columns", CASES, ids=str)
def test_gradient_to_the_edges(dtype, precision, widths, blocks, reduce, by_columns, launched):
    """One launch of one kernel, from the end of fewer pairs."""
    torch.set_float32_matmul_precision(precision)
    source, destination, relation = triples(400, 5)
    source, destination = (source % 9, destination) if by_columns else (source, destination % 9)
    assert gradient(launched, (source, destination, relation), 5, dtype, widths, blocks, reduce) == ["rgms_row_dots"]


@pytest.mark.parametrize("relations, edges", [(1, 300), (1000, 500), (3, 1)])
def test_numbers_of_relations(relations, edges, launched):
    assert gradient(launched, triples(edges, relations), relations, torch.float16, (16, 24)) == ["rgms_row_dots"]


def test_a_hub_is_cut_into_parts(launched, monkeypatch):
    """A part's row is that of the hub, whatever number the part has."""
    cut_rows_short(monkeypatch, 30, 8)
    source, destination, relation = triples(500, 4)
    destination = torch.where(torch.arange(destination.numel()) % 3 == 0, 7, destination % 40)
    assert gradient(launched, (source, destination, relation), 4, torch.float16, (16, 24)) == ["rgms_row_dots"]


def test_bytes_are_counted():
    """10 edges between rows of 16 and of 8 features of 16 bits, by hand; 2,000 blocks of rows."""
    spec = planned.dots_spec(ProductShape(16, 8, "float16", "sm_90"))
    counts = RelationCounts(2000 * spec.rows, 10, 8, 6)
    matrix = 256 / NEARER
    assert planned.dot_bytes(counts, ProductShape(16, 8, "float16", "sm_90"), panels=5) == pytest.approx(
        {"rows": counts.rows * 32 + 5 * matrix + 160, "stored": 8 * (32 + 2 * 16 + matrix / 32) + 160}
    )
    assert "rows" not in planned.dot_bytes(RelationCounts(100, 10, 8, 6), ProductShape(16, 8, "float16", "sm_90"))


def test_the_planner_takes_rows_where_they_move_less(owned_rows, matmul_precision):
    generator = torch.Generator().manual_seed(0)
    destination, source = (torch.randint(0, n, (4000,), generator=generator) for n in (400, 500))
    for relation, order in (
        (destination % 4, "rows"),
        (torch.randint(0, 2000, (4000,), generator=generator), "stored"),
    ):
        rel = gsb.RelGraph.from_triples(source, destination, relation, (400, 500), 2000)
        a = torch.ones(4000, dtype=torch.float16, requires_grad=True)
        out = gsb.rgms(
            rel,
            torch.randn(500, 16, dtype=torch.float16),
            torch.randn(2000, 16, 24, dtype=torch.float16),
            edge_weight=a,
        )
        owned_rows.clear()
        torch.autograd.grad(out, a, torch.ones_like(out))
        by = rel.side(True).pairs.count < rel.side(False).pairs.count
        widths = (16, 24) if by else (24, 16)
        assert (
            planned.order_of(cuda_rgms_orders.bytes_of_dots(rel, by, ProductShape(*widths, "float16", "serial")))
            == order
        )
        assert ("rgms_row_dots" in owned_rows) == (order == "rows")
