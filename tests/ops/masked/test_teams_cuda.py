"""Attention and products on masks as on a GPU, their kernels run serially on the CPU, against dense float64."""

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.masked.oracle import allowed, attention, keep_mask, operands
from tests.ops.masked.test_sparse_attention import ROUNDING, check, some_mask

FORWARD, BACKWARD = ["masked_forward"], ["masked_backward_queries", "masked_backward_keys"]


@pytest.mark.parametrize("dtype", ROUNDING)
def test_every_type(dtype, serial_gpu):
    """Lengths that no block divides, and a query without any key."""
    check(some_mask(37, 45, 16), 2, 3, 8, 12, dtype)
    assert serial_gpu == FORWARD + BACKWARD


@pytest.mark.parametrize(
    "queries, keys, block, width, value_width, heads",
    [(41, 33, 20, 5, 7, 1), (9, 70, 8, 130, 1, 2), (5, 3, 1, 2, 3, 1), (33, 33, 128, 64, 256, 1)],
    ids=str,
)
def test_every_shape(queries, keys, block, width, value_width, heads, serial_gpu):
    check(some_mask(queries, keys, block, heads), 2, 2, width, value_width, torch.float32, 0.3)


def test_windows_with_global_tokens(serial_gpu):
    check(gsb.masks.band(70, 9, 9, global_tokens=[0, 40]), 1, 2, 16, 16, torch.bfloat16)


def test_padding_and_a_sequence_without_keys(serial_gpu):
    padding = torch.rand(3, 45, generator=torch.Generator().manual_seed(0)) < 0.6
    padding[1] = False
    check(some_mask(37, 45, 16) & gsb.masks.padding(padding), 3, 2, 8, 8, torch.float32)


def test_dropout_keeps_what_the_cpu_keeps(serial_gpu):
    mask = some_mask(37, 45, 16, heads=2)
    q, k, v, g = operands(mask, 2, 2, 8, 8)
    ours, theirs = ([x.clone().requires_grad_() for x in (q, k, v)] for _ in range(2))
    torch.manual_seed(3)
    seed = torch.randint(0, 1 << 31, (2,))
    torch.manual_seed(3)
    out = gsb.sparse_attention(*ours, mask, dropout=0.4)
    keep = keep_mask(seed, 4, 37, 45, 0.4).view(2, 2, 37, 45)
    expected = attention(*theirs, mask, keep=keep, dropout=0.4)
    torch.testing.assert_close(out, expected)
    for found, wanted in zip(torch.autograd.grad(out, ours, g), torch.autograd.grad(expected, theirs, g)):
        torch.testing.assert_close(found, wanted)
    assert serial_gpu == FORWARD + BACKWARD


def test_what_a_mask_has_not_is_never_seen(serial_gpu):
    """NaN and infinities of keys that no query may attend."""
    dense = torch.rand(30, 50, generator=torch.Generator().manual_seed(1)) < 0.5
    dense[:, [0, 7, 31, 49]] = False
    mask = gsb.masks.from_dense(dense, block=16) & gsb.masks.padding(torch.arange(50)[None] != 5)
    q, k, v, g = operands(mask, 1, 2, 8, 8)
    for bad in (torch.nan, torch.inf):
        spoilt = [x.clone() for x in (q, k, v)]
        for x in spoilt[1:]:
            x[:, :, [0, 5, 7, 31, 49]] = bad
        results = []
        for given in ((q, k, v), spoilt):
            given = [x.clone().requires_grad_() for x in given]
            out = gsb.sparse_attention(*given, mask)
            results.append([out, *torch.autograd.grad(out, given, g)])
        for clean, found in zip(*results):
            assert torch.equal(clean, found)


@pytest.mark.parametrize("dtype, heads", [(torch.float32, 1), (torch.bfloat16, 2)])
def test_products(dtype, heads, serial_gpu):
    """Both, their gradients, and sums over the transpose."""
    mask, bound = some_mask(37, 45, 16, heads), ROUNDING[dtype]
    a, b, v, g = operands(mask, 2, 2, 8, 12, dtype)
    may = allowed(mask, 2)
    ours, theirs = [x.clone().requires_grad_() for x in (a, b, v)], [x.double().requires_grad_() for x in (a, b, v)]
    values = gsb.masked_sddmm(mask, *ours[:2])
    out = gsb.masked_spmm(mask, values, ours[2])
    dots = (theirs[0] @ theirs[1].transpose(2, 3)).where(may, 0.0)
    expected = dots @ theirs[2]
    found = [out, gsb.masked_spmm(mask, values, g, transposed=True), *torch.autograd.grad(out, ours, g)]
    wanted = [expected, dots.transpose(2, 3) @ g.double(), *torch.autograd.grad(expected, theirs, g.double())]
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=bound, atol=bound * float(y.abs().max()))
    assert set(serial_gpu) == {"masked_dots", "masked_sums", "masked_sums_transposed"}


def test_second_derivatives(serial_gpu):
    mask = some_mask(9, 7, 4)
    q, k, v, _ = (x.requires_grad_() for x in operands(mask, 1, 2, 3, 2))
    assert torch.autograd.gradgradcheck(lambda *x: gsb.sparse_attention(*x, mask), (q, k, v), fast_mode=True)
