"""Every dataflow of a sparse convolution on the CPU, and sums of outer products, against sums over pairs in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen import host_target
from gnn_sparse_backend.ops.convolution import schedules_cpu, tasks
from gnn_sparse_backend.ops.convolution.executables import conv, conv_sum
from gnn_sparse_backend.planner.cpu import convolution as rules
from gnn_sparse_backend.planner.cpu.convolution import MOST_ROWS, ORDERS
from tests.ops.convolution.pairs import close, exact, exact_sum, one_each, random_map

DTYPES = torch.float32, torch.float64, torch.bfloat16, torch.float16
WIDTHS = (1, 32, 32), (1, 5, 7), (1, 1, 1), (1, 64, 20), (2, 16, 24), (3, 2, 1), (24, 1, 1), (7, 1, 1)
MAPS = {"random": random_map, "one each": one_each}


@pytest.fixture
def all_threads(monkeypatch):
    """Threads share what there is to do, however little."""
    monkeypatch.setattr(rules, "serial_work", lambda: 0)


@pytest.fixture
def shares(monkeypatch):
    """A function: sums are cut into shares of this work and these pairs."""
    return lambda work, pairs: (
        monkeypatch.setattr(rules, "SHARE_WORK", work) or monkeypatch.setattr(rules, "SHARE_PAIRS", pairs)
    )


@pytest.fixture(params=(1, 2))
def threads(request, set_threads, all_threads):
    set_threads(request.param)
    return request.param


def operands(kernel_map, widths, dtype, seed: int = 0):
    """x, w and g, whose numbers a type has exactly."""
    groups, f_in, f_out = widths
    generator = torch.Generator().manual_seed(seed)

    def some(*shape):
        return (torch.randint(-8, 9, shape, generator=generator) / 8).to(dtype)

    (outputs, inputs), offsets = kernel_map.shape, kernel_map.num_offsets
    return some(inputs, groups * f_in), some(offsets, groups, f_in, f_out), some(outputs, groups * f_out)


def check(kernel_map, widths, dtype, orders=(None, *ORDERS)) -> None:
    groups, f_in, _ = widths
    x, w, g = operands(kernel_map, widths, dtype)
    wanted = exact(kernel_map, x, w)
    for order in orders:
        close(conv(kernel_map, x, w, order), wanted, kernel_map.num_offsets * f_in, dtype)
    close(conv_sum(kernel_map, x, g, groups), exact_sum(kernel_map, x, g, groups), kernel_map.num_pairs, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", MAPS)
def test_types(kind, dtype):
    check(MAPS[kind](), (1, 6, 20), dtype)


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("kind", MAPS)
def test_widths_and_groups(kind, widths, threads):
    check(MAPS[kind](), widths, torch.float32)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("index", (torch.int32, torch.int64), ids=str)
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_all_types_of_all_widths(widths, index, dtype, threads):
    check(random_map(index=index), widths, dtype)


def test_indices_of_64_bits():
    kernel_map = random_map(index=torch.int64)
    assert kernel_map.inputs.dtype is torch.int64
    check(kernel_map, (1, 8, 16), torch.float32)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 9), (MOST_ROWS * 2 + 3, 70)], ids=str)
def test_few_rows_and_many(shape, threads):
    """A single row, and so many that tasks are cut where their sums fill the cache; most rows have no pairs."""
    outputs, count = shape[0], min(shape)
    each = torch.arange(count)
    ends = torch.tensor([0, count, count, count + 1])
    kernel_map = gsb.KernelMap.from_pairs(
        torch.cat([each, each[:1]]), torch.cat([outputs - 1 - each, each[:1]]), ends, shape
    )
    check(kernel_map, (1, 9, 17), torch.float32)


def test_ranges_have_no_more_rows_than_a_task_has_room_for():
    """Where all pairs are of a few rows, ranges of equal cost have the most others."""
    row = torch.arange(40)
    kernel_map = gsb.KernelMap.from_pairs(row.repeat(9), row.repeat(9), torch.arange(10) * 40, (20_000, 40))
    for threads in (1, 2, 64):
        ranges, splits = rules.shares_of_tasks(20_000, 3, 1 << 30, threads)
        cuts = kernel_map.derived(tasks.RowRanges(ranges))
        assert ranges * splits >= threads and int(np.diff(cuts).max()) <= MOST_ROWS
        assert cuts[0] == 0 and cuts[-1] == 20_000 and bool((np.diff(cuts) >= 0).all())


def test_columns_are_shared_out_where_rows_are_few(all_threads, set_threads):
    assert rules.shares_of_tasks(100, 12, 1 << 30, 8) == (1, 8) and rules.shares_of_tasks(100, 3, 1 << 30, 8) == (1, 3)
    set_threads(3)
    check(random_map(), (1, 8, 80), torch.float32)


@pytest.mark.parametrize("order", ORDERS)
def test_strides_and_addresses(order):
    """Rows apart, columns apart, matrices transposed, and storage that begins between two numbers' places."""
    kernel_map = random_map()
    x, w, g = operands(kernel_map, (1, 12, 16), torch.float32)
    wanted, sums = exact(kernel_map, x, w), exact_sum(kernel_map, x, g, 1)
    apart = torch.full((x.shape[0], 40), torch.nan)
    apart[:, 3:15] = x
    odd = torch.frombuffer(bytearray(1 + x.nbytes), dtype=torch.float32, offset=1).view(x.shape).copy_(x)
    assert odd.data_ptr() % 4
    columns = x.t().contiguous().t()
    transposed = w.transpose(2, 3).contiguous().transpose(2, 3)
    neither = torch.stack([w, torch.full_like(w, torch.nan)], -1)[..., 0]
    for given in (apart[:, 3:15], odd, columns):
        close(conv(kernel_map, given, w, order), wanted, 9 * 12, torch.float32)
        close(conv_sum(kernel_map, given, g, 1), sums, kernel_map.num_pairs, torch.float32)
    for given in (transposed, neither):
        close(conv(kernel_map, x, given, order), wanted, 9 * 12, torch.float32)
    close(conv_sum(kernel_map, x, g.t().contiguous().t(), 1), sums, kernel_map.num_pairs, torch.float32)


@pytest.mark.parametrize("order", [*ORDERS, "depthwise"])
def test_what_a_row_does_not_meet_does_not_reach_it(order):
    """Inf in the matrix of an offset and NaN in a row of x: rows that meet the one or the other are not finite, all
    others are, though blocks and tiles are filled up with others."""
    kernel_map = random_map()
    widths = (5, 1, 1) if order == "depthwise" else (1, 5, 7)
    x, w, g = operands(kernel_map, widths, torch.float32)
    w[2], x[9], x[-1], w[3] = torch.inf, torch.nan, torch.nan, torch.nan
    offset = kernel_map.derived(gsb.structures.kernel_map.Offsets())
    hit = (offset == 2) | (kernel_map.inputs == 9)
    met = torch.zeros(kernel_map.shape[0], dtype=torch.bool)
    met[kernel_map.outputs[hit].long()] = True
    found = conv(kernel_map, x, w, order)
    assert 0 < met.sum() < len(met) and torch.equal(~found.isfinite().all(1), met)
    g[11] = torch.inf
    sums = conv_sum(kernel_map, x.nan_to_num(0.5), g, widths[0])
    met = torch.zeros(kernel_map.num_offsets, dtype=torch.bool)
    met[offset[kernel_map.outputs == 11].long()] = True
    assert 0 < met.sum() < len(met) and torch.equal(~sums.isfinite().flatten(1).all(1), met)


@pytest.mark.parametrize("order", [*ORDERS[:3], None])
def test_the_same_bits_for_any_number_of_threads(order, all_threads, shares, set_threads):
    shares(work=1 << 10, pairs=50)
    generator = torch.Generator().manual_seed(0)
    x, w, g = (torch.randn(s, generator=generator) for s in ((210, 24), (9, 1, 24, 40), (230, 40)))
    found = []
    for threads in (1, 2, 3, 7):
        set_threads(threads)
        kernel_map = random_map()
        found.append((conv(kernel_map, x, w, order), conv_sum(kernel_map, x, g, 1)))
    for one in found[1:]:
        assert torch.equal(one[0], found[0][0]) and torch.equal(one[1], found[0][1])


def test_shares_of_a_sum(shares, monkeypatch):
    """Shares that begin and end within offsets, and chunks that a share cuts off."""
    shares(work=1 << 9, pairs=9)
    monkeypatch.setattr(rules, "LONGEST_CHUNK", 7)
    check(random_map(), (1, 5, 7), torch.float32, (None,))
    check(one_each(), (4, 1, 1), torch.float32, (None,))


def test_rows_too_wide_for_a_chunk(monkeypatch):
    monkeypatch.setattr(rules, "CHUNK_ELEMENTS", 64)
    check(random_map(), (1, 5, 90), torch.float32, ("offsets",))


def test_two_terms_at_a_time(monkeypatch):
    """As on a CPU that has the instruction; here its functions are ordinary code."""
    monkeypatch.setattr(
        schedules_cpu, "takes_bf16_pairs", lambda features, dtype, target: dtype == "bfloat16" and features % 2 == 0
    )
    assert schedules_cpu.spec_of("offsets", 6, 20, "bfloat16", "int32").bf16_pairs
    assert not schedules_cpu.spec_of("offsets", 5, 20, "bfloat16", "int32").bf16_pairs
    check(random_map(), (1, 6, 20), torch.bfloat16)
    check(random_map(), (2, 6, 8), torch.bfloat16, ("offsets", "rows", "row"))


def test_a_kernel_serves_every_width():
    """Nothing but types and the width of a tile is static."""
    target = host_target()
    specs = {
        schedules_cpu.spec_of("offsets", f_in, f_out, dtype, "int32", target)
        for f_in, f_out in ((4, 32), (64, 64), (96, 128), (384, 256), (5, 96))
        for dtype in ("float32", "bfloat16")
        if not (dtype == "bfloat16" and schedules_cpu.takes_bf16_pairs(f_in, dtype, target))
    }
    assert len(specs) == 1
    wide, narrow = (schedules_cpu.spec_of("offsets", 8, f_out, "float32", "int32", target) for f_out in (64, 1))
    assert wide.vectors == 2 and narrow.vectors == 1
    # with a row of the matrix and one factor, sums fit the registers
    assert wide.block * wide.vectors + wide.vectors + 1 <= (32 if target.vector_bytes >= 64 else 16)


def test_an_order_that_is_none_is_refused():
    kernel_map = random_map()
    x, w, _ = operands(kernel_map, (1, 4, 4), torch.float32)
    with pytest.raises(ValueError, match="order must be one of .*got 'columns'"):
        conv(kernel_map, x, w, "columns")
