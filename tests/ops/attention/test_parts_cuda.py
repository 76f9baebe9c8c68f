"""Attention over graphs with hubs on a GPU: rows in parts, merged in a second pass; serialised, against float64 on the
CPU.
"""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.operators import OPERATORS, step
from tests.ops.serial_gpu import cut_rows_short

ROUNDING = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 8e-2}


@pytest.fixture
def short_parts(monkeypatch):
    """Rows of more than 8 non-zeros are cut into parts of 4."""
    cut_rows_short(monkeypatch, 8, 4)


def hub_graph() -> gsb.Graph:
    """A row of 30 edges and a column of 20, rows and columns of none, edges in an order of their own."""
    generator = torch.Generator().manual_seed(0)
    row = torch.cat([torch.full((30,), 3), torch.randint(0, 8, (30,), generator=generator)])
    col = torch.cat([torch.randint(0, 11, (40,), generator=generator), torch.full((20,), 5)])
    order = torch.randperm(60, generator=generator)
    return gsb.Graph.from_coo(row[order], col[order], (9, 12))


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("attention", torch.float64),
        ("attention", torch.bfloat16),
        ("gatv2_attention", torch.float64),
        ("gat_attention", torch.float64),
    ],
    ids=str,
)
def test_attention_and_its_gradients_in_parts(name, dtype, request):
    torch.manual_seed(0)
    operands = OPERATORS[name].operands(hub_graph(), dtype)
    exact = [x.detach().double().requires_grad_() for x in operands]
    expected = step(name, hub_graph(), exact)
    request.getfixturevalue("short_parts")
    launched = request.getfixturevalue("serial_gpu")
    found = step(name, hub_graph(), operands)
    assert "attention_parts" in launched and "softmax_merge" in launched and "attention" not in launched
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), b, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
