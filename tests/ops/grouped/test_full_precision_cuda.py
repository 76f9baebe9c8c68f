"""Grouped products of float32 where PyTorch allows no tf32, forward and backward, serialised on the CPU, against
float64.

Operands are quarters, whose products and sums are exact in float32.
"""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.operators import quarters as quarters_of


def quarters(*shape: int, seed: int = 0) -> torch.Tensor:
    return quarters_of(*shape, dtype=torch.float32, seed=seed)


@pytest.fixture(autouse=True)
def highest(matmul_precision):
    torch.set_float32_matmul_precision("highest")


@pytest.mark.short(3)
@pytest.mark.parametrize(
    "widths, lengths, launched",
    [
        ((64, 36), (70, 0, 300, 1), "grouped_rows"),
        ((602, 41), (5, 9, 0, 2), "grouped_rows"),
        ((7, 3), (120, 0, 2, 150), "grouped_rows"),
        ((1433, 2), (3, 4), "grouped_product"),
        ((16, 1), (30, 9), "grouped_product"),
        ((7, 3), (1, 0, 2, 1), "grouped_product"),
    ],
    ids=str,
)
def test_segments(widths, lengths, launched, serial_gpu):
    """Panels of 64 rows and of few; windows of 43 features. Widths that no window divides, one column, and few columns
    of few rows stay on ordinary kernels."""
    count, segments = sum(lengths), len(lengths)
    a, b = (
        quarters(count, widths[0]).requires_grad_(),
        torch.stack([quarters(*widths, seed=seed) for seed in range(segments)]).requires_grad_(),
    )
    out = gsb.segment_mm(a, b, torch.tensor(lengths))
    assert serial_gpu == [launched]
    index = torch.repeat_interleave(torch.arange(segments), torch.tensor(lengths))
    exact = torch.einsum("nf,nfk->nk", a.double(), b.double()[index])
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=0)
    cotangent = quarters(*out.shape, seed=9)
    for found, wanted in zip(
        torch.autograd.grad(out, (a, b), cotangent), torch.autograd.grad(exact, (a, b), cotangent.double())
    ):
        torch.testing.assert_close(found.double(), wanted.double(), rtol=0, atol=0)


def test_rows_that_an_index_names(serial_gpu):
    """In the order of the index, with a row that is not finite: it stays alone."""
    index = torch.randint(0, 3, (200,), generator=torch.Generator().manual_seed(0))
    a, b = quarters(200, 32), torch.stack([quarters(32, 24, seed=seed) for seed in range(3)])
    a[17], b[2, 0, 0] = torch.inf, torch.nan
    out = gsb.gather_mm(a, b, index)
    assert serial_gpu == ["grouped_rows"]
    exact = torch.einsum("nf,nfk->nk", a.double(), b.double()[index])
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=0, equal_nan=True)
    assert torch.isfinite(out[index != 2].flatten()).sum() == (index != 2).sum() * 24 - 24 * int(index[17] != 2)


def test_operands_of_any_layout(serial_gpu):
    lengths = torch.tensor([40, 30])
    a, b = quarters(70, 16), torch.stack([quarters(16, 8, seed=seed) for seed in range(2)])
    expected = gsb.segment_mm(a, b, lengths)
    for odd in (
        torch.cat([a, a], 1)[:, :16],
        a.T.contiguous().T,
        torch.cat([torch.zeros(1), a.flatten()])[1:].view(70, 16),
    ):
        assert torch.equal(gsb.segment_mm(odd, b, lengths), expected)
    assert torch.equal(gsb.segment_mm(a, b.transpose(1, 2).contiguous().transpose(1, 2), lengths), expected)
