"""Few queries against a long cache of keys, which several threads share, against attention in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen import generate_assembly
from gnn_sparse_backend.compiler.codegen.target import Target
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.ops.masked import executables_cpu, schedules_cpu
from tests.compiler.schedules.test_amx_tiles import on_x86
from tests.compiler.schedules.test_memory_tiles import zen_4
from tests.ops.masked.oracle import flex as dense

KEYS = 200
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}
PRESENT = torch.arange(KEYS) < torch.tensor([[130], [200]])


def biased(s, b, h, q, k):
    return s + 0.25 * b - 0.5 * h * (k % 3)


@pytest.fixture
def shares(monkeypatch):
    """The number of parts of each call; a part may have 64 keys."""
    monkeypatch.setattr(executables_cpu, "LEAST_SHARE", 64)
    found, original = [], executables_cpu._shares

    def noted(*given):
        found.append(original(*given))
        return found[-1]

    monkeypatch.setattr(executables_cpu, "_shares", noted)
    return found


def operands(heads: int, of_keys: int, queries: int, width: int, dtype: torch.dtype, of_cache: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    shapes = (2, heads, queries, width), *((of_cache, of_keys, KEYS, each) for each in (width, width + 16))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def assert_dense(found: tuple[Tensor, Tensor], given: list[Tensor], mod, hides) -> None:
    expected = dense(*(x.double() for x in given), mod, hides)
    close = ROUNDING[given[0].dtype]
    for one, other in zip(found, expected):
        torch.testing.assert_close(one.double(), other, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(
    ("heads", "of_keys", "queries", "width"), [(1, 1, 1, 32), (4, 2, 2, 32), (2, 2, 3, 32), (3, 3, 3, 5)]
)
def test_parts_of_the_keys_are_put_together(shares, dtype, heads, of_keys, queries, width):
    given = operands(heads, of_keys, queries, width, dtype)
    mask = gsb.masks.full((queries, KEYS)) & gsb.masks.padding(PRESENT)
    found = gsb.flex_attention(*given, biased, mask, enable_gqa=True, return_lse=True)
    assert_dense(found, given, biased, lambda b, h, q, k: PRESENT[b, k])
    assert shares == [200 // 64 if width == 32 else 4]


@pytest.mark.parametrize(("heads", "by_pairs"), [(2, False), (4, True), (6, True)])
def test_two_features_at_a_time(monkeypatch, heads, by_pairs):
    """As several queries of bfloat16 go where that is fast: in ordinary instructions elsewhere."""
    specs, original = [], executables_cpu._spec
    monkeypatch.setattr(Target, "has_fast_bf16_pairs", property(lambda self: True))
    monkeypatch.setattr(executables_cpu, "_spec", lambda *given: specs.append(original(*given)) or specs[-1])
    given = operands(heads, 2, 1, 64, torch.bfloat16)
    mask = gsb.masks.full((1, KEYS), block=64) & gsb.masks.padding(PRESENT)
    found = gsb.flex_attention(*given, None, mask, enable_gqa=True, return_lse=True, scale=0.2)
    assert [spec.by_pairs for spec in specs] == [by_pairs]
    assert_dense(found, given, lambda s, b, h, q, k: 1.6 * s, lambda b, h, q, k: PRESENT[b, k])


@on_x86
def test_the_code_multiplies_pairs_of_four_queries_and_four_keys():
    spec = schedules_cpu.spec_of(16, 64, 64, "bfloat16", target=zen_4(), queries=4)
    text = generate_assembly(stage3(*schedules_cpu.scheduled("forward", spec, True)), zen_4())
    assert text.count("vdpbf16ps") >= 16


@pytest.mark.short(3)
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(
    ("heads", "of_keys", "queries"), [(1, 1, 1), (2, 2, 2), (3, 1, 1), (5, 1, 1), (6, 2, 2), (2, 1, 4)]
)
def test_keys_side_by_side(dtype, heads, of_keys, queries):
    """Vectors have the lanes of several keys, of which a mask takes any range, and NaN stands beyond it."""
    given = operands(heads, of_keys, queries, 32, dtype)
    mask = gsb.masks.band((queries, KEYS), -37, 160)
    for x in given[1:]:
        x[:, :, :37] = x[:, :, 165:] = torch.nan
    found = gsb.flex_attention(*given, None, mask, enable_gqa=True, return_lse=True)
    for x in given[1:]:
        x[:, :, :37] = x[:, :, 165:] = 0.0
    assert_dense(found, given, None, lambda b, h, q, k: (k - q >= 37) & (k - q <= 160))


def test_a_part_without_keys_weighs_nothing(shares):
    """Keys of all parts but one are away, and of one sequence all of them."""
    given = operands(1, 1, 1, 32, torch.float64)
    present = (torch.arange(KEYS) >= 140) & torch.tensor([[True], [False]])
    mask = gsb.masks.full((1, KEYS)) & gsb.masks.padding(present)
    found = gsb.flex_attention(*given, None, mask, return_lse=True)
    assert_dense(found, given, None, lambda b, h, q, k: present[b, k])
    assert shares == [3] and found[0][1].eq(0).all() and found[1][1].eq(-torch.inf).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_pages_that_threads_share(shares, dtype, monkeypatch):
    """Two sequences, each with pages of its own in one cache."""
    page, count = 8, 25
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    table, lengths = torch.stack([order[:12], order[12:24]]), torch.tensor([90, 67])
    planes = gsb.masks.pages(table, lengths, page, count=count)
    given = operands(4, 2, 1, 32, dtype, of_cache=1)
    monkeypatch.setattr(executables_cpu, "LEAST_SHARE", 16)
    found = gsb.flex_attention(*given, block_mask=planes, enable_gqa=True, return_lse=True)
    seen = planes.dense()
    assert_dense(found, [x.expand(2, -1, -1, -1) for x in given], None, lambda b, h, q, k: seen[b, 0 * h, q, k])
    assert shares[0] > 1


def test_bits_do_not_depend_on_threads_that_share(set_threads):
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(1, 1, n, 32, generator=generator) for n in (1, 5000, 5000))
    found = []
    for threads in (1, 2, 3):
        set_threads(threads)
        found.append(gsb.flex_attention(q, k, v, return_lse=True))
    assert all(torch.equal(one, other) for pair in found[1:] for one, other in zip(found[0], pair))
