"""Reductions of a few edges that PyTorch does faster: PyG keeps them, and they are counted."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.utils import scatter

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.pyg.host import TINY
from gnn_sparse_backend.planner.cpu.listed import FEW, USUAL
from tests.integrations.pyg.pair import calls

pytestmark = pytest.mark.few


@pytest.mark.parametrize(
    ("reduce", "edges", "width", "recorded", "left"),
    [
        ("sum", 512, 32, False, True),
        ("sum", 513, 32, False, False),
        ("add", 512, 32, True, True),
        ("sum", 513, 32, True, False),
        ("sum", 1024, 8, False, False),  # PyTorch reduces narrow features one by one
        ("mean", 1, 32, False, False),
        ("mean", 256, 32, True, True),
        ("max", 256, 32, False, True),
        ("max", 256, 32, True, False),
    ],
)
def test_reductions_that_are_faster_in_pytorch_are_left_to_it(reduce, edges, width, recorded, left):
    assert FEW.features == USUAL and FEW.tiny
    x = torch.randn(edges, width, requires_grad=recorded)
    index = torch.arange(edges) % 7
    expected = scatter(x, index, 0, 7, reduce)
    with gsb.enabled("pyg"):
        found = scatter(x, index, 0, 7, reduce)
        (counted,) = calls().values()
    torch.testing.assert_close(found, expected)
    assert counted == ({TINY.reason: 1} if left else 1)
