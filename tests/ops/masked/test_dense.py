"""Attention of all pairs: what is left to PyTorch's, and that it is the same either way."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.compiler.codegen import host_target
from gnn_sparse_backend.ops.masked.flex import api, dense
from tests.compiler.schedules.test_memory_tiles import zen_4
from tests.ops.masked.oracle import flex


def operands(queries, keys, width=64, dtype=torch.bfloat16, heads=2):
    generator = torch.Generator().manual_seed(0)
    shapes = (1, heads, queries, width), (1, heads, keys, width), (1, heads, keys, width)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


@pytest.mark.parametrize(
    ("case", "left"),
    [
        ((1, 4096, 64, torch.float32), True),  # below 65,536 pairs
        ((1, 32768, 64, torch.float32), False),
        ((1, 4096, 64, torch.bfloat16), False),
        ((512, 512, 64, torch.float32), True),
        ((512, 512, 64, torch.float64), True),
        ((512, 512, 64, torch.float16), False),
        ((512, 512, 64, torch.bfloat16), False),
        ((512, 512, 48, torch.bfloat16), False),
        ((512, 512, 17, torch.bfloat16), True),
        ((64, 64, 64, torch.bfloat16), True),
    ],
)
def test_what_pytorch_is_faster_at(monkeypatch, case, left):
    """Where bfloat16 goes two numbers at a time."""
    monkeypatch.setattr(dense, "host_target", zen_4)
    assert dense.pytorch_is_faster(*operands(*case)) == left


@pytest.mark.parametrize("features", [(), ("avx512f",), (*zen_4().features, "amx-bf16", "amx-tile")])
def test_other_processors_leave_bfloat16_to_pytorch(monkeypatch, features):
    other = dataclasses.replace(host_target(), cpu="sapphirerapids", features=features)
    monkeypatch.setattr(dense, "host_target", lambda: other)
    assert dense.pytorch_is_faster(*operands(512, 512))


@pytest.mark.parametrize("left", [True, False])
def test_results_and_gradients_are_those_of_all_pairs(monkeypatch, left):
    asked = []
    monkeypatch.setattr(api, "pytorch_is_faster", lambda *given: asked.append(1) or left)
    given = operands(150, 130)
    ours = [x.clone().requires_grad_() for x in given]
    theirs = [x.double().requires_grad_() for x in given]
    out, (expected, _) = gsb.flex_attention(*ours), flex(*theirs)
    assert asked
    g = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    out.backward(g)
    expected.backward(g.double())
    for one, other in ((out, expected), *((x.grad, y.grad) for x, y in zip(ours, theirs))):
        assert (one.double() - other).abs().max() <= 2e-2 * other.abs().max()
