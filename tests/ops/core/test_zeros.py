"""Zeros without memory, which PyTorch gives to gradients of which it knows that they are zero."""

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.operators import OPERATORS, RGMS, some_graph


def structure_of(name):
    graph = some_graph()
    return gsb.RelGraph.from_graph(graph, torch.arange(graph.num_edges) % 3, 3) if name in RGMS else graph


@pytest.mark.short(2)
@pytest.mark.parametrize("name", [*OPERATORS, *RGMS])
def test_operands_and_cotangents(name):
    operator, structure = {**OPERATORS, **RGMS}[name], structure_of(name)
    torch.manual_seed(0)
    operands = operator.operands(structure)
    leaves = [x for x in operands if torch.is_tensor(x) and x.requires_grad]
    for at, x in enumerate(operands):
        if torch.is_tensor(x) and x.is_floating_point():
            given = torch.zeros_like(x), torch._efficientzerotensor(tuple(x.shape), dtype=x.dtype)
            found = [operator.run(structure, *operands[:at], zero, *operands[at + 1 :]) for zero in given]
            torch.testing.assert_close(*found, rtol=0, atol=0, equal_nan=True)
    result = operator.run(structure, *operands)
    zeros = torch.zeros_like(result), torch._efficientzerotensor(tuple(result.shape), dtype=result.dtype)
    expected, found = (torch.autograd.grad(result, leaves, zero, retain_graph=True) for zero in zeros)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_a_second_derivative_through_what_is_straight():
    x = torch.randn(12, 3, requires_grad=True)
    (first,) = torch.autograd.grad(gsb.spmm(some_graph(), x).abs().sum(), x, create_graph=True)
    assert torch.autograd.grad(first.sum(), x)[0].eq(0).all()
    x = torch.randn(50, 20, requires_grad=True)
    with gsb.enabled("pyg"):
        (first,) = torch.autograd.grad(torch.nn.functional.dropout(x, 0.5).abs().sum(), x, create_graph=True)
        assert torch.autograd.grad(first.sum(), x)[0].eq(0).all()
