"""Products on tile registers, in ordinary instructions where the processor has none, against attention in float64."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen.target import Target
from gnn_sparse_backend.compiler.schedules.primitives.cpu.mmla_tiles import mmla_tiles
from gnn_sparse_backend.ops.masked import executables_cpu, schedules_cpu
from tests.ops.masked.oracle import flex as dense

LENGTH = 150
SLOPES = torch.tensor([0.5, 0.125])
PRESENT = torch.arange(LENGTH) < torch.tensor([[97], [LENGTH]])
FUNCTIONS = {
    "none": None,
    "alibi": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "soft cap": lambda s, b, h, q, k: 2 * torch.tanh(s / 2),
    "hidden": lambda s, b, h, q, k: torch.where((q + k) % 3 == 1, -torch.inf, s),
}


@pytest.fixture
def specs(monkeypatch):
    """The specs of programs, which are for tiles where they may be."""
    found, original = [], executables_cpu._spec
    monkeypatch.setattr(Target, "has_bf16_tiles", property(lambda self: True))
    monkeypatch.setattr(schedules_cpu, "tile_products", lambda names, target: mmla_tiles(names))

    def noted(*given):
        found.append(original(*given))
        return found[-1]

    monkeypatch.setattr(executables_cpu, "_spec", noted)
    return found


@pytest.mark.short(4)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_scores(specs, name, padded):
    generator = torch.Generator().manual_seed(3)
    shapes = [(2, 2, LENGTH, width) for width in (32, 32, 64)]
    given = [torch.randn(shape, generator=generator).bfloat16() for shape in shapes]
    mask = gsb.masks.band(LENGTH, 100, 0)
    if padded:
        mask = mask & gsb.masks.padding(PRESENT)
        for x in given[1:]:
            x[0, :, 97:] = torch.nan
    found = gsb.flex_attention(*given, FUNCTIONS[name], mask, return_lse=True)
    assert [spec.tiles for spec in specs] == [True]
    if padded:
        for x in given[1:]:
            x[0, :, 97:] = 0.0

    def hides(b, h, q, k):
        return (k <= q) & (q - k <= 100) & (PRESENT[b, k] if padded else k >= 0)

    for one, other in zip(found, dense(*(x.double() for x in given), FUNCTIONS[name], hides)):
        torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=2e-2)
