"""Build dot-product attention from three operators, then have it in one pass, which stores no scores of the edges.
Both are compared, gradients included, with attention by a dense matrix in PyTorch.

    python examples/attention_by_hand.py
"""

import math

import torch

import gnn_sparse_backend as gsb

NODES, EDGES, HEADS, WIDTH = 500, 5_000, 4, 16


def three_steps(graph, query, key, value):
    """A score for each edge, a softmax over the edges into each node, a weighted sum."""
    scores = gsb.sddmm(graph, query, key) / math.sqrt(WIDTH)
    return gsb.spmm(graph, value, gsb.edge_softmax(graph, scores))


def dense(edge_index, query, key, value):
    """The same with all pairs of nodes; `edge_index` has no edge twice."""
    scores = torch.einsum("ihd,jhd->hij", query, key) / math.sqrt(WIDTH)
    absent = torch.ones(NODES, NODES, dtype=torch.bool)
    absent[edge_index[1], edge_index[0]] = False
    weights = scores.masked_fill(absent, -math.inf).softmax(2).nan_to_num(0)  # NaN: nodes without edges
    return torch.einsum("hij,jhd->ihd", weights, value)


def main():
    torch.manual_seed(0)
    pairs = torch.randperm(NODES * NODES)[:EDGES]
    edge_index = torch.stack([pairs // NODES, pairs % NODES])
    graph = gsb.Graph.from_edge_index(edge_index, size=(NODES, NODES))
    operands = [torch.randn(NODES, HEADS, WIDTH, requires_grad=True) for _ in range(3)]
    grad = torch.randn(NODES, HEADS, WIDTH)

    expected = dense(edge_index, *operands)
    wanted = torch.autograd.grad(expected, operands, grad)
    for attend in (three_steps, gsb.attention):
        out = attend(graph, *operands)
        gradients = torch.autograd.grad(out, operands, grad)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradients, wanted, rtol=1e-4, atol=1e-5)
        print(f"{attend.__name__}: results and {len(gradients)} gradients as with a dense matrix")


if __name__ == "__main__":
    main()
