"""Layers whose slices are transposed in squares, where rows, columns and tokens end within a square."""

import pytest
import torch

import gnn_sparse_backend as gsb


@pytest.mark.parametrize("words", ["csr", "bsr(8)"])
@pytest.mark.parametrize("shape, tokens", [((17, 33), 19), ((45, 130), 35)])
def test_odd_sizes_are_those_of_float64(shape, tokens, words):
    """Forward and both gradients, of rows without a non-zero and of tokens that lie column by column."""
    generator = torch.Generator().manual_seed(0)
    drawn = lambda *sizes: torch.randn(sizes, generator=generator)
    weight = drawn(*shape) * (drawn(*shape) > 1.0)
    weight[3], weight[:, 2] = 0, 0
    parts = gsb.formats.decompose(weight.to_sparse_csr(), [words])
    values = parts.values_of(weight).requires_grad_()
    x, bias, g = drawn(shape[1], tokens).t().requires_grad_(), drawn(shape[0]), drawn(tokens, shape[0])
    y = gsb.composed_linear(parts, values, x, bias)
    found = y, *torch.autograd.grad(y, (values, x), g)
    wide = g.double()
    wanted = (
        x.double() @ weight.double().t() + bias.double(),
        (wide.t() @ x.double())[weight != 0],
        wide @ weight.double(),
    )
    for ours, right in zip(found, wanted):
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-4)
