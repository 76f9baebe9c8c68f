"""What pyg-lib has beside the functions of the other libraries, and its operators by their names in C++."""

from __future__ import annotations

import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import pyg_lib
from gnn_sparse_backend.integrations.pyg_lib.ops.scatter_reduce import fused_scatter_reduce


def test_products_and_softmax_by_segment():
    torch.manual_seed(0)
    x, ptr, weight = torch.randn(8, 5), torch.tensor([0, 5, 5, 8]), torch.randn(3, 5, 2)
    expected = torch.cat([x[:5] @ weight[0], x[5:] @ weight[2]])
    torch.testing.assert_close(pyg_lib.ops.segment_matmul(x, ptr, weight), expected)
    bias = torch.randn(3, 2)
    torch.testing.assert_close(
        pyg_lib.ops.segment_matmul(x, ptr, weight, bias), expected + bias[[0, 0, 0, 0, 0, 2, 2, 2]]
    )
    shares = torch.cat([x[:5].softmax(0), x[5:].softmax(0)])
    torch.testing.assert_close(pyg_lib.ops.softmax_csr(x, ptr), shares)
    torch.testing.assert_close(pyg_lib.ops.softmax_csr(x.t(), ptr, 1), shares.t())
    (product,) = pyg_lib.ops.grouped_matmul([x], [weight[0]], [bias[0]])
    torch.testing.assert_close(product, x @ weight[0] + bias[0])
    rows = torch.tensor([3, 3, 0])
    assert torch.equal(pyg_lib.ops.sampled_sub(x, x[:3], left_index=rows), x[rows] - x[:3])


def test_several_reductions_stand_side_by_side():
    x, index = torch.randn(7, 3), torch.tensor([2, 0, 2, 2, 4, 0, 4])
    found = fused_scatter_reduce(x, index, 5, ["sum", "mean", "min", "max"])
    at = index[:, None].expand_as(x)
    expected = [
        torch.zeros(5, 3).scatter_reduce(0, at, x, kind, include_self=False) for kind in ("sum", "mean", "amin", "amax")
    ]
    torch.testing.assert_close(found, torch.cat(expected, 1))


def test_sorts_of_many_numbers_keep_the_order_of_equal_ones():
    numbers = torch.randint(0, 1000, (20_000,))
    for given in (numbers, numbers[:100]):
        found, expected = pyg_lib.ops.index_sort(given, 1000), given.sort(stable=True)
        assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


def test_samples():
    """All neighbours of a node: both ends of each edge are there, the other way for rows that are destinations."""
    rowptr, col = torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 2])
    for csc in (False, True):
        row, other, nodes, edges, by_node, by_edge = pyg_lib.sampler.neighbor_sample(
            rowptr, col, torch.tensor([0]), [-1, -1], csc=csc
        )
        first, second = (other, row) if csc else (row, other)
        assert nodes.tolist() == [0, 1, 2] and edges.tolist() == [0, 1, 2]
        assert nodes[first].tolist() == [0, 0, 1] and nodes[second].tolist() == [1, 2, 2]
        assert (by_node, by_edge) == ([1, 2, 0], [2, 1])
    pointers, columns, edges = pyg_lib.sampler.subgraph(rowptr, col, torch.tensor([2, 0]))
    assert (pointers.tolist(), columns.tolist(), edges.tolist()) == ([0, 0, 1], [0], [1])
    assert pyg_lib.sampler.random_walk(rowptr, col, torch.tensor([1]), 3).tolist() == [[1, 2, 2, 2]]


def test_operators_are_known_by_their_names():
    x, ptr = torch.randn(12, 3), torch.tensor([0, 5, 12])
    with gsb.enabled("pyg_lib"):
        import pyg_lib as given

        assert torch.equal(torch.ops.pyg.knn(x, x, ptr, ptr, 2, False, 1), given.ops.knn(x, x, 2, ptr, ptr))
        edges = torch.ops.pyg.radius(x, x, ptr, ptr, 10.0, 32, 1, True)
        assert edges.shape[1] == 5 * 4 + 7 * 6
        assert torch.ops.pyg.fps(x, ptr, 0.5, False).tolist()[0] == 0
        assert torch.ops.pyg.nearest(x, x, ptr, ptr).tolist() == list(range(12))
