"""Products on tiles, in ordinary instructions where the processor has no others, against attention in float64."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen import generate_assembly
from gnn_sparse_backend.compiler.codegen.target import Target
from gnn_sparse_backend.compiler.compile import stage3
from gnn_sparse_backend.compiler.schedules.primitives.cpu.memory_tiles import CALLED, memory_tiles
from gnn_sparse_backend.ops.masked import executables_cpu, schedules_cpu
from gnn_sparse_backend.ops.masked.programs.modifier import SCORE, Modifier, Node
from tests.compiler.schedules.test_amx_tiles import on_x86, sapphire_rapids
from tests.ops.masked.oracle import attention, keep_mask
from tests.ops.masked.oracle import flex as dense

LENGTH = 150
SLOPES = torch.tensor([0.5, 0.125])
PRESENT = torch.arange(LENGTH) < torch.tensor([[97], [LENGTH]])
BIASES = torch.linspace(-1, 1, 2 * LENGTH).bfloat16()
FUNCTIONS = {
    "none": None,
    "alibi": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "soft cap": lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
    "hidden": lambda s, b, h, q, k: torch.where((q + k) % 3 == 1, -torch.inf, s),
    "no operand": lambda s, b, h, q, k: 0.25 * (q - k),
}


@pytest.fixture(params=CALLED)
def specs(monkeypatch, request):
    """The specs of programs, which are for tiles where they may be."""
    found, original, empty = [], executables_cpu._spec, executables_cpu.empty
    monkeypatch.setattr(Target, "has_bf16_tiles", property(lambda self: True))
    monkeypatch.setattr(schedules_cpu, "tile_products", lambda names, target: memory_tiles(names, request.param))
    schedules_cpu.masked_kernel.cache_clear()

    def noted(*given):
        found.append(original(*given))
        return found[-1]

    monkeypatch.setattr(executables_cpu, "_spec", noted)
    monkeypatch.setattr(executables_cpu, "empty", lambda *given, **more: empty(*given, **more).fill_(torch.nan))
    yield found
    assert found and all(spec.tiles for spec in found)
    schedules_cpu.masked_kernel.cache_clear()


def operands(*shapes):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=generator).bfloat16() for shape in shapes]


def assert_close(found, expected):
    """To the digits of bfloat16, relative to the largest number: sums of many terms cancel."""
    error = (found.double() - expected).abs().max()
    assert error <= 1.5e-2 * expected.abs().max(), (error, expected.abs().max())


def compare(given, call, oracle, cotangents):
    """Results and gradients of all operands. oracle(doubles)."""
    ours = [x.clone().requires_grad_() for x in given]
    found = call(*ours)
    theirs = [x.double().requires_grad_() for x in given]
    expected = oracle(*theirs)
    for one, other in zip(found, expected):
        assert_close(one, other)
    torch.autograd.backward(found, cotangents)
    depends = [(x, g.double()) for x, g in zip(expected, cotangents) if x.requires_grad]
    torch.autograd.backward(*zip(*depends))
    for x, y in zip(ours, theirs):
        assert x.grad.isfinite().all()
        assert_close(x.grad, torch.zeros_like(y) if y.grad is None else y.grad)


@pytest.mark.short(5)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_scores(specs, name, padded):
    """padded: keys that a sequence has not are not numbers."""
    q, k, v, g = operands(*((2, 2, LENGTH, width) for width in (32, 32, 64, 64)))
    mask = gsb.masks.band(LENGTH, 100, 0)
    if padded:
        mask = mask & gsb.masks.padding(PRESENT)

    def call(q, k, v):
        hole = torch.where(PRESENT[:, None, :, None], 0.0, torch.nan if padded else 0.0).bfloat16()
        return gsb.flex_attention(q, k + hole, v + hole, FUNCTIONS[name], mask, return_lse=True)

    def hides(b, h, q, k):
        return (k <= q) & (q - k <= 100) & (PRESENT[b, k] if padded else k >= 0)

    of_lse = torch.randn(2, 2, LENGTH, generator=torch.Generator().manual_seed(4))
    compare((q, k, v), call, lambda *given: dense(*given, FUNCTIONS[name], hides), (g, of_lse))


@pytest.mark.short(4)
@pytest.mark.parametrize(
    ("queries", "keys", "width", "value_width"),
    [(70, 200, 64, 32), (200, 70, 32, 96), (64, 64, 128, 64), (1000, 40, 32, 32), (130, 70, 80, 45), (70, 130, 27, 72)],
)
def test_lengths_and_widths(specs, queries, keys, width, value_width):
    """Operands that do not lie one behind the other, scaled otherwise than by their width."""
    shapes = (2, queries, 2, width), (2, keys, 2, width), (2, keys, 2, value_width), (2, 2, queries, value_width)
    *given, g = operands(*shapes)
    mask = gsb.masks.full((queries, keys), block=32)
    compare(
        given,
        lambda q, k, v: [gsb.sparse_attention(*(x.transpose(1, 2) for x in (q, k, v)), mask, scale=0.3)],
        lambda q, k, v: [attention(*(x.transpose(1, 2) for x in (q, k, v)), mask, 0.3)],
        [g],
    )


def test_rows_that_no_pair_has_may_be_anything(specs):
    """Infinite queries, keys and values there change nothing. One key is in no pair of the first block alone."""
    query, key = torch.arange(96)[:, None], torch.arange(96)
    allowed = (key <= query) & (key % 5 != 3) & (query % 7 != 2) & ((key != 5) | (query >= 32))
    mask = gsb.masks.from_dense(allowed, block=32)
    unused_keys, unused_queries = ~allowed.any(0), ~allowed.any(1)
    assert unused_keys.any() and unused_queries.any()
    *given, g = operands(*((1, 1, 96, 32) for _ in range(4)))
    holes = {0: unused_queries, 1: unused_keys, 2: unused_keys}
    dirty = [x.clone() for x in given]
    for n, rows in holes.items():
        dirty[n][:, :, rows] = torch.inf
        given[n] = given[n].masked_fill(rows[:, None], 0.0)
    soiled = [x.clone().requires_grad_() for x in dirty]
    out = gsb.sparse_attention(*soiled, mask)
    out.backward(g)
    theirs = [x.double().requires_grad_() for x in given]
    expected = attention(*theirs, mask)
    expected.backward(g.double())
    for one, other in ((out, expected), *((x.grad, y.grad) for x, y in zip(soiled, theirs))):
        assert_close(one, other)


def test_a_table_of_biases_has_its_gradient(specs):
    *given, g = operands(*((1, 2, LENGTH, 32) for _ in range(4)))
    tables = [BIASES.clone().requires_grad_(), BIASES.double().requires_grad_()]

    def biased(table):
        return lambda s, b, h, q, k: s + table[q - k + LENGTH]

    compare(
        given,
        lambda *ours: [gsb.flex_attention(*ours, biased(tables[0]))],
        lambda *theirs: dense(*theirs, biased(tables[1]))[:1],
        [g],
    )
    assert_close(tables[0].grad, tables[1].grad)


def test_dropout_is_that_of_the_seed(specs):
    *given, g = operands(*((2, 3, LENGTH, 32) for _ in range(4)))
    mask = gsb.masks.causal(LENGTH)
    torch.manual_seed(3)
    keep = keep_mask(torch.randint(0, 2**31, (2,)), 6, LENGTH, LENGTH, 0.3).view(2, 3, LENGTH, LENGTH)

    def call(*ours):
        torch.manual_seed(3)
        return [gsb.sparse_attention(*ours, mask, dropout=0.3)]

    compare(given, call, lambda *theirs: [attention(*theirs, mask, None, keep, 0.3)], [g])


@on_x86
@pytest.mark.short(2)
@pytest.mark.parametrize("modified", [False, True])
@pytest.mark.parametrize("make", schedules_cpu.WORKSPACES)
def test_the_code_for_amx(monkeypatch, make, modified):
    """Every product goes by tile registers, in steps of 32 terms of 4 tiles at once."""
    monkeypatch.setattr(schedules_cpu, "host_target", sapphire_rapids)
    modifier = Modifier(Node("tanh", (SCORE,))) if modified else None
    spec = schedules_cpu.spec_of(64, 64, 32, "bfloat16", True, target=sapphire_rapids(), modifier=modifier)
    text = generate_assembly(stage3(*schedules_cpu.scheduled(make, spec, True)), sapphire_rapids())
    terms = {"forward": (64, 64), "backward": (64, 64, 32, 64, 64)}[make]
    assert text.count("\ttdpbf16ps\t") >= sum(4 * count // 32 for count in terms)
    assert text.count("\ttilerelease\n") and "vdpbf16ps" not in text
