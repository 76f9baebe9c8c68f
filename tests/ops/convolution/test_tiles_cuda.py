"""Sparse convolution by kernels for a GPU, serialised on the CPU, against sums over pairs in float64."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.convolution import schedules_cuda
from gnn_sparse_backend.ops.convolution.executables import conv, conv_sum, order_of
from gnn_sparse_backend.ops.convolution.executables_cuda import order_on_gpu
from gnn_sparse_backend.runtime import layout
from tests.ops.convolution.pairs import close, exact, exact_sum, one_each, random_map
from tests.ops.serial_gpu import ARCH

CASES = [  # dtype, precision of float32, (groups, F_in, F_out), what is launched forward, and for the sum at first
    (torch.float16, "high", (1, 16, 24), ["conv_tiles"], ["grouped_sum_tiles"]),
    (torch.bfloat16, "high", (2, 5, 11), ["conv_tiles"], []),
    (torch.float32, "high", (1, 12, 3), ["conv_tiles"], ["grouped_sum_tiles"]),
    (torch.float32, "highest", (1, 12, 24), ["conv_tiles"], ["grouped_sum_tiles"]),
    (torch.float32, "highest", (2, 5, 3), ["conv_tiles"], []),
    (torch.float16, "high", (20, 1, 1), ["depthwise_rows"], ["depthwise_parts", "aggregate"]),
    (torch.float32, "highest", (7, 1, 1), ["depthwise_rows"], ["depthwise_parts", "aggregate"]),
    (torch.float64, "high", (1, 6, 4), ["grouped_product", "aggregate"], []),
]


def operands(kernel_map, widths, dtype):
    groups, f_in, f_out = widths
    generator = torch.Generator().manual_seed(0)

    def some(*shape):
        return (torch.randint(-8, 9, shape, generator=generator) / 8).to(dtype)

    (outputs, inputs), offsets = kernel_map.shape, kernel_map.num_offsets
    return some(inputs, groups * f_in), some(offsets, groups, f_in, f_out), some(outputs, groups * f_out)


@pytest.mark.short(3)
@pytest.mark.parametrize("dtype, precision, widths, forward, backward", CASES, ids=str)
def test_products_and_sums(dtype, precision, widths, forward, backward, serial_gpu, matmul_precision):
    """Both layouts of matrices; tf32 has all bits of these numbers."""
    torch.set_float32_matmul_precision(precision)
    for kernel_map in (random_map((150, 130)), one_each(90)):
        x, w, g = operands(kernel_map, widths, dtype)
        wanted = exact(kernel_map, x, w)
        for given in (w, w.transpose(2, 3).contiguous().transpose(2, 3)):
            serial_gpu.clear()
            close(conv(kernel_map, x, given), wanted, kernel_map.num_offsets * widths[1], dtype)
            assert serial_gpu == forward
        serial_gpu.clear()
        found = conv_sum(kernel_map, x, g, widths[0])
        assert serial_gpu[: len(backward)] == backward
        close(found, exact_sum(kernel_map, x, g, widths[0]), kernel_map.num_pairs, dtype)


def test_gradients_through_the_public_operator(serial_gpu, matmul_precision):
    kernel_map = random_map((150, 130))
    x, w, g = operands(kernel_map, (1, 16, 24), torch.float16)
    x, w = x.requires_grad_(), w.requires_grad_()
    out = gsb.sparse_conv(x, w.squeeze(1), kernel_map)
    found = torch.autograd.grad(out, (x, w), g)
    assert set(serial_gpu) == {"conv_tiles", "grouped_sum_tiles"}
    assert not out._is_view(), "layers may write into it"
    wanted = [t.detach().double().requires_grad_() for t in (x, w)]
    expected = torch.autograd.grad(exact(kernel_map, *wanted), wanted, g.double())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("widths", [(1, 5, 7), (5, 1, 1)], ids=str)
def test_what_a_row_does_not_meet_does_not_reach_it(widths, serial_gpu, matmul_precision):
    """Inf in the matrix of an offset and NaN in a row of x reach the rows that meet them, and no others, though blocks
    go through offsets that only some of their rows meet."""
    kernel_map = random_map((150, 130))
    x, w, _ = operands(kernel_map, widths, torch.float16)
    w[2], x[9], x[-1], w[3] = torch.inf, torch.nan, torch.nan, torch.nan
    offset = torch.repeat_interleave(kernel_map.indptr.long().diff())
    met = torch.zeros(150, dtype=torch.bool)
    met[kernel_map.outputs[(offset == 2) | (kernel_map.inputs == 9)].long()] = True
    found = conv(kernel_map, x, w)
    assert 0 < met.sum() < 150 and torch.equal(~found.isfinite().all(1), met)
    assert not found[149].any()  # which meets nothing


def test_windows_of_channels(serial_gpu, matmul_precision, monkeypatch):
    """Of rows too wide for the shared memory a block keeps some channels at a time."""
    monkeypatch.setattr(schedules_cuda, "SHARED_BYTES", 3 << 10)
    schedules_cuda.tiles_spec.cache_clear()
    kernel_map = random_map((90, 70))
    x, w, _ = operands(kernel_map, (1, 96, 16), torch.float16)
    spec = schedules_cuda.tiles_spec(96, 16, "float16", ARCH, 1, 128)
    assert spec is not None and spec.window in (16, 32, 48)
    close(conv(kernel_map, x, w), exact(kernel_map, x, w), 9 * 96, torch.float16)
    # an odd number of channels has no windows
    assert schedules_cuda.tiles_spec(95, 16, "float16", ARCH, 1, 128) is None
    x, w, _ = operands(kernel_map, (1, 95, 16), torch.float16)
    serial_gpu.clear()
    close(conv(kernel_map, x, w), exact(kernel_map, x, w), 9 * 95, torch.float16)
    assert "conv_tiles" not in serial_gpu
    schedules_cuda.tiles_spec.cache_clear()


def test_matrices_are_taken_as_they_are_stored(serial_gpu, matmul_precision, calls_to):
    kernel_map = random_map((90, 70))
    x, w, _ = operands(kernel_map, (1, 16, 24), torch.float16)
    compacted = calls_to(layout, "compact")
    copied = lambda: [x.shape for (x,), *_ in compacted if not x.is_contiguous()]
    for given in (w, w.transpose(2, 3).contiguous().transpose(2, 3)):
        conv(kernel_map, x, given)
    assert not copied()
    conv(kernel_map, x, torch.stack([w, w], -1)[..., 0])
    assert copied() == [w.shape]


def test_later_calls_read_nothing_back(serial_gpu, matmul_precision, monkeypatch):
    """After the first call of a shape and type a step can be captured in a CUDA graph."""

    def refuse(*_):
        raise AssertionError("a value was read back")

    for widths in ((1, 16, 24), (20, 1, 1)):
        kernel_map = random_map((90, 70))
        x, w, g = operands(kernel_map, widths, torch.float16)
        first = conv(kernel_map, x, w), conv_sum(kernel_map, x, g, widths[0])
        with monkeypatch.context() as patch:
            for method in ("item", "__bool__", "__int__", "__index__", "tolist", "nonzero", "cpu", "numpy"):
                patch.setattr(torch.Tensor, method, refuse)
            again = conv(kernel_map, x, w), conv_sum(kernel_map, x, g, widths[0])
        assert all(map(torch.equal, first, again))


def test_orders(serial_gpu, matmul_precision):
    kernel_map = random_map((90, 70))
    described = (64, 64, torch.float16, "sm_90")
    assert order_on_gpu(kernel_map, 1, *described) == "tiles"
    assert order_on_gpu(kernel_map, 1, 64, 64, torch.float64, "sm_90") == "rgms"
    assert order_on_gpu(kernel_map, 1, 64, 64, torch.float16, "sm_75") == "rgms"
    assert order_of(kernel_map, 64, 1, 1, torch.float64) == "depthwise"
    x, w, _ = operands(kernel_map, (1, 8, 8), torch.float64)
    with pytest.raises(ValueError, match="order 'tiles' does not make products of 8 x 8 in torch.float64"):
        conv(kernel_map, x, w, "tiles")
