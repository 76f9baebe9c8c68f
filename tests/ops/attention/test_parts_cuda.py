"""Attention over graphs with hubs on a GPU: rows in parts, merged in a second pass; serialised, against float64 on the
CPU.
"""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.attention.operators import EDGE_SOFTMAX, SEGMENT_SOFTMAX
from tests.ops.attention_oracle import assert_close, graph_of, rows_of
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


INF, NAN = float("inf"), float("nan")
LONG = {  # rows of three parts
    "finite": [1, -2, 0.5] * 4,
    "+inf": [1, INF, 2, *[0.5] * 8],
    "+inf in two parts": [INF, *[1] * 9, INF, INF],
    "+inf and -inf": [INF, *[-INF] * 10],
    "-inf": [-INF] * 11,
    "-inf in a part": [-INF] * 5 + [1] * 6,
    "NaN": [*[1] * 5, NAN, *[2] * 5],
    "NaN and +inf": [NAN, *[1] * 9, INF],
    "short": [INF, 1],
    "none": [],
}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(
    "operator, infinite", [(SEGMENT_SOFTMAX, 0.0), (EDGE_SOFTMAX, None)], ids=["segments", "edges"]
)
def test_infinite_scores_of_long_rows(operator, infinite, dtype, short_parts, serial_gpu):
    """As PyTorch has them: the softmax of segments takes an infinite maximum for 0, and adds a little to the sum."""
    structure = rows_of([len(row) for row in LONG.values()])
    scores = torch.tensor([x for row in LONG.values() for x in row], dtype=dtype)[:, None] + torch.tensor([0, -1.0]).to(
        dtype
    )
    found = operator(graph_of(structure), (scores,))
    assert "softmax_merge" in serial_gpu
    expected = []
    for row in scores.double().split([len(row) for row in LONG.values()]):
        most = row.amax(0) if len(row) else row.sum(0)
        weights = (row - (most if infinite is None else most.masked_fill(most.isinf(), infinite))).exp()
        expected.append(weights / (weights.sum(0) + (0 if infinite is None else 1e-16)))
    assert_close(found, torch.cat(expected), dtype)
