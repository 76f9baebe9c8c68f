"""Splines against sums that are written out, with gradients."""

import itertools

import pytest
import torch

from gnn_sparse_backend.integrations import torch_spline_conv as ts


@pytest.mark.parametrize("degree", (1, 2, 3))
def test_splines_add_up_and_weights_are_numbered(degree):
    """Splines of a point add up to 1, weights of each are numbered with the first axis fastest, closed ones go
    round.
    """
    torch.manual_seed(0)
    pseudo = torch.rand(7, 2, dtype=torch.float64, requires_grad=True)
    sizes, is_open = torch.tensor([4, 6]), torch.tensor([1, 0], dtype=torch.uint8)
    basis, index = ts.spline_basis(pseudo, sizes, is_open, degree)
    torch.testing.assert_close(basis.sum(1), torch.ones(7, dtype=torch.float64))
    cells = (pseudo * (sizes - degree * is_open)).long()
    for s, (second, first) in enumerate(itertools.product(range(degree + 1), repeat=2)):
        assert torch.equal(index[:, s], (cells[:, 0] + first) % 4 + 4 * ((cells[:, 1] + second) % 6))
    assert torch.autograd.gradcheck(lambda x: ts.spline_basis(x, sizes, is_open, degree)[0], pseudo)


def test_weighting_and_convolution():
    torch.manual_seed(0)
    x, weight = torch.randn(3, 2, dtype=torch.float64), torch.randn(5, 2, 4, dtype=torch.float64)
    basis, index = torch.rand(3, 2, dtype=torch.float64), torch.randint(0, 5, (3, 2))
    given = [z.requires_grad_() for z in (x, weight, basis)]
    found = ts.spline_weighting(*given, index)
    expected = torch.einsum("es,ei,esio->eo", basis, x, weight[index])
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    for one, other in zip(torch.autograd.grad(found, given, grad), torch.autograd.grad(expected, given, grad)):
        torch.testing.assert_close(one, other)
    edges, pseudo = torch.tensor([[0, 0, 2], [1, 2, 0]]), torch.tensor([0.1, 0.9, 0.5], dtype=torch.float64)
    splines = ts.spline_basis(pseudo[:, None], torch.tensor([5]), torch.tensor([1]), 1)
    messages = ts.spline_weighting(x[edges[1]], weight, *splines)
    out = ts.spline_conv(x, edges, pseudo, weight, torch.tensor([5]), torch.tensor([1]), bias=torch.ones(4))
    torch.testing.assert_close(out, torch.stack([messages[:2].mean(0), torch.zeros(4).double(), messages[2]]) + 1)


def test_wrong_calls_are_told():
    sizes = torch.tensor([4]), torch.tensor([1])
    with pytest.raises(ValueError, match="1, 2 or 3, got 4"):
        ts.spline_basis(torch.rand(2, 1), *sizes, 4)
    with pytest.raises(ValueError, match=r"\(2, 3\), \(1,\)"):
        ts.spline_basis(torch.rand(2, 3), *sizes, 1)
