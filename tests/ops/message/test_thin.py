"""A few edges into very many rows: rows that are a view are not copied but for those of the edges."""

from __future__ import annotations

import itertools

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message import calls, prepared_call, thin
from tests.ops.core.test_operands import VIEWS
from tests.ops.oracle import assert_right, longest_row, random, sddmm_oracle, spmm_oracle

ROWS, COLUMNS, EDGES = 20, 2_000, 90


def structure():
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(ROWS - 3, (EDGES,), generator=generator)
    column = torch.randint(COLUMNS, (EDGES,), generator=generator)
    column[1] = column[0]
    return row.numpy(), column.numpy(), (ROWS, COLUMNS)


@pytest.fixture
def copied(calls_to):
    """A function: how many rows there were in each graph that took the place of another until now."""
    asked = [calls_to(module, "gathered") for module in (calls, prepared_call)]
    return lambda: [
        max(x.shape[0] for x, place in zip(call.result[1], call.arguments[1]) if place == "column")
        for call in itertools.chain(*asked)
        if call.result is not None
    ]


@pytest.mark.parametrize("view", [name for name in VIEWS if name not in ("parameter", "flipped", "from_numpy")])
@pytest.mark.parametrize("shape", [(5,), (3, 4)], ids=str)
def test_views_of_many_rows(view, shape, copied):
    row, column, sizes = given = structure()
    graph = gsb.Graph.from_coo(row, column, sizes)
    x, weight = VIEWS[view](random(COLUMNS, *shape, seed=1)), random(EDGES, seed=2)
    for _ in range(3):  # a call that is known goes on so
        assert_right(gsb.spmm(graph, x), spmm_oracle(given, x), longest_row(given))
        assert_right(gsb.spmm(graph, x, weight), spmm_oracle(given, x, weight), longest_row(given))
    u = random(ROWS, *shape, seed=3)
    assert_right(gsb.sddmm(graph, u, x), sddmm_oracle(given, u, x), shape[-1])
    as_it_is = thin.is_ready(x)
    assert set(copied()) == (set() if as_it_is else {EDGES})


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_gradients(reduce, copied):
    row, column, sizes = structure()
    graph, plain = (gsb.Graph.from_coo(row, column, sizes) for _ in range(2))
    leaf, weight = random(COLUMNS, 1, grad=True), random(EDGES, seed=2, grad=True)
    wide = leaf.expand(COLUMNS, 6)
    out = gsb.spmm(graph, wide, weight, reduce)
    expected = gsb.spmm(plain, wide.contiguous(), weight, reduce)
    torch.testing.assert_close(out, expected)
    cotangent = random(ROWS, 6, seed=4)
    for one, other in zip(*(torch.autograd.grad(y, (leaf, weight), cotangent) for y in (out, expected))):
        torch.testing.assert_close(one, other)
    assert set(copied()) == {EDGES}
    assert torch.autograd.gradcheck(lambda x, w: gsb.spmm(graph, x.expand(COLUMNS, 2), w, "sum"), (leaf[:1], weight))


def test_rows_that_are_ready_are_read_as_they_are(copied):
    row, column, sizes = structure()
    gsb.spmm(gsb.Graph.from_coo(row, column, sizes), random(COLUMNS, 5))
    few = gsb.Graph.from_coo(row, column % 50, (ROWS, 50))
    gsb.spmm(few, random(50, 1).expand(50, 5))
    assert not copied()


def test_weights_of_another_type_widen_the_rows_of_edges():
    """As PyG does: not all rows are converted."""
    pyg = pytest.importorskip("torch_geometric.nn")

    class Weighted(pyg.MessagePassing):
        def forward(self, x, edge_index, weight, size):
            return self.propagate(edge_index, x=(x, None), weight=weight, size=size)

        def message(self, x_j, weight):
            return x_j * weight.view(-1, 1)

    row, column, _ = structure()
    edge_index = torch.stack((torch.from_numpy(column), torch.from_numpy(row)))
    x, weight = random(COLUMNS, 4).float(), random(EDGES)
    expected = Weighted()(x, edge_index, weight, (COLUMNS, ROWS))
    with gsb.enabled("pyg"):
        found = Weighted()(x, edge_index, weight, (COLUMNS, ROWS))
    assert found.dtype is torch.float64
    torch.testing.assert_close(found, expected)
