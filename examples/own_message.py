"""Write a message of your own: the gated sum of GatedGCN (Bresson and Laurent, 2017) is one line, gradients included.
Nothing of size edges x features is stored; results and gradients are compared with plain PyTorch, which stores four.

    python examples/own_message.py
"""

import torch

import gnn_sparse_backend as gsb

NODES, EDGES, FEATURES = 2_000, 20_000, 32


def gated_sum(graph, gate_source, gate_target, value):
    """out[i] = sum over the edges j -> i of sigmoid(gate_source[j] + gate_target[i]) * value[j]."""
    operands = [("u", gate_source), ("v", gate_target), ("u", value)]
    return gsb.aggregate(graph, "mul(sigmoid(add(x0, x1)), x2)", operands, reduce="sum")


def plain_gated_sum(edge_index, gate_source, gate_target, value):
    """The same in PyTorch: every factor is gathered to the edges first."""
    source, target = edge_index
    gate = torch.sigmoid(gate_source[source] + gate_target[target])
    return torch.zeros_like(gate_target).index_add(0, target, gate * value[source])


def main():
    torch.manual_seed(0)
    edge_index = torch.randint(0, NODES, (2, EDGES))
    graph = gsb.Graph.from_edge_index(edge_index, size=(NODES, NODES))
    operands = [torch.randn(NODES, FEATURES, requires_grad=True) for _ in range(3)]

    out = gated_sum(graph, *operands)
    expected = plain_gated_sum(edge_index, *operands)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)

    grad = torch.randn_like(out)
    gradients = torch.autograd.grad(out, operands, grad)
    for got, wanted in zip(gradients, torch.autograd.grad(expected, operands, grad)):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
    print(f"the sum and {len(gradients)} gradients agree with PyTorch's on {EDGES:,} edges")

    # Gradients are messages themselves, so they can be differentiated again.
    small = gsb.Graph.from_edge_index(edge_index[:, :12] % 5, size=(5, 5))
    operands = [torch.randn(5, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(lambda *x: gated_sum(small, *x), operands)
    assert torch.autograd.gradgradcheck(lambda *x: gated_sum(small, *x), operands)
    print("first and second gradients agree with finite differences")


if __name__ == "__main__":
    main()
