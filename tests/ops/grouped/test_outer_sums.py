"""Gradients of matrices on Tensor Cores: sums of outer products, serially, against sums in float64.

Operands are quarters, whose products and sums are exact in float32: results differ by the rounding of what is returned.
"""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.formats.partitions.outer_tasks import outer_tasks
from gnn_sparse_backend.ops.grouped.executables import run_grouped_sum
from gnn_sparse_backend.ops.grouped.outer_sums_cuda import takes_sum
from gnn_sparse_backend.ops.grouped.schedules_cuda import sum_length, sum_shape, sums_in_tiles
from gnn_sparse_backend.ops.relational.schedules_cuda import sums_by_columns
from tests.ops.operators import quarters

pytestmark = pytest.mark.usefixtures("matmul_precision")


def near(found, exact):
    assert found.shape == exact.shape
    torch.testing.assert_close(found.double(), exact, rtol=torch.finfo(found.dtype).eps, atol=0)


# neither vectors nor whole tiles; more than a block of warps holds
@pytest.mark.parametrize(
    "dtype, widths, precision",
    [
        (torch.bfloat16, (17, 9), "high"),
        (torch.float32, (136, 72), "high"),
        (torch.float32, (17, 9), "highest"),
        (torch.float32, (136, 72), "highest"),
    ],
    ids=str,
)
@pytest.mark.short(2)
def test_sums_over_segments(dtype, widths, precision, serial_gpu):
    torch.set_float32_matmul_precision(precision)
    lengths = torch.tensor([0, 1, 600, 32, 0, 33])  # none, one, several tasks, a chunk, more than a chunk
    index = torch.repeat_interleave(torch.arange(6), lengths)[
        torch.randperm(666, generator=torch.Generator().manual_seed(2))
    ]
    a, g = quarters(666, widths[0], dtype=dtype), quarters(666, widths[1], dtype=dtype, seed=1)
    segments = gsb.Segments.from_index(index, 6)
    found = run_grouped_sum(segments, a, g)
    outer = torch.einsum("nf,nk->nfk", a.double(), g.double())
    near(found, torch.zeros(6, *widths, dtype=torch.float64).index_add(0, index, outer))
    assert torch.equal(found, run_grouped_sum(segments, a, g))
    assert set(serial_gpu) == {"grouped_sum_tiles", "aggregate"}


def test_what_is_not_there_is_not_met(serial_gpu):
    """Rows of others, and what a chunk lacks, are not multiplied by anything: 0 * Inf is NaN."""
    a, g = torch.ones(40, 16, dtype=torch.float16), torch.ones(40, 8, dtype=torch.float16)
    a[20:] = float("inf")
    g[20:] = float("nan")
    b = torch.zeros(2, 16, 8, dtype=torch.float16, requires_grad=True)
    (found,) = torch.autograd.grad(gsb.segment_mm(a, b, torch.tensor([20, 20])), b, g)
    assert found[0].eq(20).all() and found[1].isnan().all()


@pytest.mark.parametrize(
    "dtype, reduce, by_columns, blocks",
    [(torch.float16, "mean", False, 1), (torch.bfloat16, "sum", True, 3), (torch.float32, "mean", True, 2)],
    ids=str,
)
def test_gradients_of_relations(dtype, reduce, by_columns, blocks, serial_gpu):
    """Rows of several edges, relations without edges, more pairs than a chunk holds, and than a task does; blocks on
    the diagonal; float32 in full precision."""
    torch.set_float32_matmul_precision("highest")
    generator = torch.Generator().manual_seed(3)
    relation = torch.cat([torch.zeros(300), torch.full((1,), 2.0), torch.full((60,), 3.0)]).long()
    ends = (torch.randint(0, 90, (361,), generator=generator), torch.arange(361) % 240)  # of few pairs, of many
    source, destination = ends if by_columns else ends[::-1]
    sizes = (90, 240) if by_columns else (240, 90)
    rel = gsb.RelGraph.from_triples(source, destination, relation, sizes[::-1], 5)
    widths = (17, 24) if by_columns else (24, 17)
    wide = [blocks * width for width in widths]
    assert sums_by_columns(361, rel.side(False).pairs.count, rel.side(True).pairs.count, *wide) == by_columns
    x = quarters(sizes[0], wide[0], dtype=dtype)
    w = torch.zeros(5, *widths, dtype=dtype) if blocks == 1 else torch.zeros(5, blocks, *widths, dtype=dtype)
    g, weight = quarters(sizes[1], wide[1], dtype=dtype, seed=1), quarters(361, dtype=dtype, seed=2)
    scale = weight.double()
    if reduce == "mean":
        key = relation * sizes[1] + destination
        scale = scale / torch.bincount(key)[key]
    (found,) = torch.autograd.grad(gsb.rgms(rel, x, w.requires_grad_(), weight, reduce), w, g)
    assert "rgms_sum_tiles" in serial_gpu and "grouped_sum" not in serial_gpu
    ends = (y.double().unflatten(1, (blocks, -1)) for y in (x[source], g[destination]))
    terms = torch.einsum("e,edf,edk->edfk", scale, *ends)
    exact = torch.zeros(5, blocks, *widths, dtype=torch.float64).index_add(0, relation, terms).view(w.shape)
    eps = torch.finfo(dtype).eps  # sums of a pair are rounded before they are multiplied
    torch.testing.assert_close(found.double(), exact, rtol=4 * eps, atol=8 * eps)


def test_blocks_on_the_diagonal_are_apart(serial_gpu):
    """What is infinite in the features of a block stays with it, and blocks too small for Tensor Cores store their
    sums.
    """
    rel = gsb.RelGraph.from_triples(torch.arange(20), torch.arange(20) % 7, torch.arange(20) % 2, (7, 20))
    x, g = torch.ones(20, 48, dtype=torch.float16), torch.ones(7, 24, dtype=torch.float16)
    x[:, 16:32] = float("inf")
    g[:, 16:] = float("nan")
    w = torch.ones(2, 3, 16, 8, dtype=torch.float16, requires_grad=True)
    (found,) = torch.autograd.grad(gsb.rgms(rel, x, w), w, g)
    assert "rgms_sum_tiles" in serial_gpu
    assert found[:, 0].eq(10).all() and found[:, 1].isinf().all() and found[:, 2].isnan().all()
    del serial_gpu[:]
    w = torch.ones(2, 24, 2, 1, dtype=torch.float16, requires_grad=True)
    (found,) = torch.autograd.grad(gsb.rgms(rel, torch.ones_like(x), w), w, torch.ones_like(g))
    assert "rgms_sum_tiles" not in serial_gpu and found.eq(10).all()
    assert serial_gpu.count("grouped_product") == serial_gpu.count("grouped_sum") == 1  # all blocks in one launch


def test_float64_and_thin_matrices_stay_on_ordinary_kernels():
    """Full precision of float32 does not, on any GPU."""
    assert takes_sum(16, 8, torch.float32, "sm_90") and not takes_sum(16, 1, torch.float16, "sm_90")
    assert not takes_sum(16, 8, torch.float32, "sm_75")
    torch.set_float32_matmul_precision("highest")
    assert (
        takes_sum(16, 8, torch.float16, "sm_90")
        and takes_sum(16, 8, torch.float32, "sm_75")
        and not takes_sum(16, 8, torch.float64, "sm_90")
    )
    assert not takes_sum(16, 1, torch.float32, "sm_75")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tasks(dtype):
    offsets = torch.tensor([0, 0, 5, 5, 12, 13], dtype=dtype)
    found = outer_tasks(offsets, 13, 2, 4)
    # and as many chunks without positions as sizes leave room for
    assert found.start.tolist() == [0, 2, 4, 5, 7, 9, 11, 12, 13] and found.stop.tolist() == [
        2,
        4,
        5,
        7,
        9,
        11,
        12,
        13,
        13,
    ]
    assert found.task_ptr.tolist() == [0, 0, 2, 3, 3, 5, 7, 8] and found.slot.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert found.segment_ptr.tolist() == [0, 1, 3, 4, 6, 7] and found.start.dtype == dtype
    indptr, indices = found.rows_of_parts(2)
    assert indptr.tolist() == [0, 1, 2, 4, 6, 7, 8, 10, 12, 13, 14]
    assert indices.tolist() == [0, 1, 2, 4, 3, 5, 6, 7, 8, 10, 9, 11, 12, 13]
    whole = outer_tasks(offsets, 13, 2, 8)
    assert (
        whole.segment_ptr is None
        and whole.slot.tolist() == [0, 1, 2, 3, 4]
        and whole.task_ptr.tolist() == [0, 0, 3, 3, 7, 8]
    )
    more = outer_tasks(offsets, 13, 2, 8, unread=True)
    assert (
        more.segment_ptr.tolist() == [0, 1, 2, 3, 4, 5]
        and more.task_ptr.tolist() == [0, 0, 3, 3, 7, 8, 8]
        and more.tasks == 6
    )


def test_rules():
    assert sum_shape(64, 64) == ((2, 2), (2, 4), 0)
    assert sum_shape(16, 8)[0] == (1, 1)
    warps, tiles, _ = sum_shape(256, 256)
    assert warps[0] * warps[1] == 4 and tiles[0] * tiles[1] == 16
    # what is loaded more often decides: all columns in one block
    assert 8 * sum_shape(128, 128, 4)[0][1] * sum_shape(128, 128, 4)[1][1] == 128
    assert sums_in_tiles(17, 9, "bfloat16", "sm_90") and not sums_in_tiles(64, 1, "float16", "sm_90")
    assert not sums_in_tiles(64, 64, "float64", "sm_90") and not sums_in_tiles(64, 64, "float16", "sm_75")
    assert sum_length(10**7, 64, 64, "float16") >= 10**7 // 4096 and sum_length(100, 64, 64, "float16") == 512
    assert sums_by_columns(1000, 900, 100, 64, 64) and not sums_by_columns(1000, 100, 900, 64, 64)
