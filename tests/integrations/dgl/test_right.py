"""What DGL gets wrong alone and is right with the backend: each line of ``docs/howto/right-with-the-backend.md``.

The first half of each test says that DGL still does: where a release of it does not, the page has a line too many.
"""

from __future__ import annotations

import dgl
import dgl.nn as layers
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

import gnn_sparse_backend as gsb

GRAPH = ([0, 1, 2, 0, 3, 3], [1, 2, 0, 2, 0, 3])
OLD = pytest.mark.skipif(not dgl.__version__.startswith("1."), reason="the page tells what was seen with DGL 1.1.3")
ATTENTION = {
    "GATConv": lambda: layers.GATConv(3, 2, 2),
    "GATv2Conv": lambda: layers.GATv2Conv(3, 2, 2),
    "DotGatConv": lambda: layers.DotGatConv(3, 2, 2),
    "AGNNConv": lambda: layers.AGNNConv(),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_second_gradients_of_attention(name):
    torch.manual_seed(1)
    graph, layer = dgl.graph(GRAPH), ATTENTION[name]().double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(GradcheckError):
        gradgradcheck(lambda x: layer(graph, x), (x,), fast_mode=True)
    with gsb.enabled("dgl"):
        assert gradcheck(lambda x: layer(graph, x), (x,)) and gradgradcheck(
            lambda x: layer(graph, x), (x,), fast_mode=True
        )


def test_second_gradients_of_a_softmax():
    graph, scores = dgl.graph(GRAPH), torch.randn(6, 1, dtype=torch.float64, requires_grad=True)
    with pytest.raises(GradcheckError):
        gradgradcheck(lambda s: dgl.ops.edge_softmax(graph, s), (scores,), fast_mode=True)
    with gsb.enabled("dgl"):
        assert gradgradcheck(lambda s: dgl.ops.edge_softmax(graph, s), (scores,), fast_mode=True)


@OLD
def test_float16_on_a_cpu():
    graph, x, scores = dgl.graph(GRAPH), torch.rand(4, 3).half(), torch.rand(6, 1).half()
    for call in (lambda: dgl.ops.copy_u_sum(graph, x), lambda: dgl.ops.edge_softmax(graph, scores)):
        with pytest.raises(dgl.DGLError, match="can only be"):
            call()
    with gsb.enabled("dgl"):
        expected = torch.zeros(4, 3).index_add_(0, torch.tensor(GRAPH[1]), x.float()[torch.tensor(GRAPH[0])])
        torch.testing.assert_close(dgl.ops.copy_u_sum(graph, x), expected.half())
        sums = torch.zeros(4, 1).index_add_(0, torch.tensor(GRAPH[1]), dgl.ops.edge_softmax(graph, scores).float())
        torch.testing.assert_close(sums, torch.tensor([[1.0], [1.0], [1.0], [1.0]]), rtol=0, atol=2e-3)


@OLD
def test_gradients_on_rows_whose_edges_have_no_numbers():
    """A graph that was given as CSC or CSR, without numbers of its edges."""
    rows, degree = 600, 8
    indptr = torch.arange(0, rows * degree + 1, degree)
    indices = torch.randint(rows, (rows * degree,), generator=torch.Generator().manual_seed(0))
    graph = dgl.graph(("csc", (indptr, indices, indices[:0])), num_nodes=rows)
    torch.manual_seed(0)
    layer, x = layers.GATConv(64, 16, 4, allow_zero_in_degree=True), torch.randn(rows, 64)
    with pytest.raises(dgl.DGLError, match="notnull"):
        layer(graph, x).sum().backward()
    listed = dgl.graph((indices, torch.arange(rows).repeat_interleave(degree)), num_nodes=rows)
    expected = torch.autograd.grad(layer(listed, x).square().sum(), list(layer.parameters()))
    with gsb.enabled("dgl"):
        found = torch.autograd.grad(layer(graph, x).square().sum(), list(layer.parameters()))
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
