"""Softmax over edges and maxima on a GPU, in lanes along the edges of a row and over parts of long rows: serialised,
against float64.
"""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from tests.ops.serial_gpu import cut_rows_short

ROUNDING = {torch.float64: 1e-11, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture
def short_parts(monkeypatch):
    """Rows of more than 40 non-zeros are cut into parts of 16."""
    cut_rows_short(monkeypatch, 40, 16)


def hub_graph(mean: int) -> tuple[gsb.Graph, torch.Tensor]:
    """Rows of no edges, of one, of about ``mean``, and a hub of 5 means; edges in an order of their own. And the row of
    each edge.
    """
    lengths = torch.tensor([0, 1, mean, 5 * mean, mean + 1, 2 * mean, 0])
    order = torch.randperm(int(lengths.sum()), generator=torch.Generator().manual_seed(0))
    row = torch.repeat_interleave(torch.arange(len(lengths)), lengths)[order]
    return gsb.Graph.from_coo(row, torch.arange(len(row)) * 7 % 11, (len(lengths), 11)), row


def softmax_of(scores: torch.Tensor, row: torch.Tensor, rows: int) -> torch.Tensor:
    """In float64, row by row."""
    at = row.view(-1, *(1,) * (scores.dim() - 1)).expand_as(scores)
    most = scores.new_full((rows, *scores.shape[1:]), float("-inf")).scatter_reduce(0, at, scores.detach(), "amax")
    powers = (scores - most[row]).exp()
    return powers / torch.zeros_like(most).index_add(0, row, powers)[row]


@pytest.mark.parametrize("parts", [False, True], ids=["whole rows", "parts"])
@pytest.mark.parametrize(
    "dtype, heads, mean",
    [
        (torch.float64, (), 10),
        (torch.float16, (3,), 40),
        (torch.bfloat16, (8,), 150),
    ],
    ids=["one head", "three heads", "eight heads of long rows"],
)
def test_softmax_over_edges(dtype, heads, mean, parts, request, serial_gpu):
    if parts:
        request.getfixturevalue("short_parts")
    graph, row = hub_graph(mean)
    generator = torch.Generator().manual_seed(1)
    scores = (3 * torch.randn(len(row), *heads, generator=generator)).to(dtype).requires_grad_()
    exact = scores.detach().double().requires_grad_()
    found, expected = gsb.edge_softmax(graph, scores), softmax_of(exact, row, 7)
    torch.testing.assert_close(found.double(), expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
    names = ["edge_softmax_parts", "softmax_merge", "edge_softmax_apply"] if parts else ["edge_softmax"]
    assert serial_gpu == names
    cotangent = torch.randn(found.shape, generator=generator).to(dtype)
    serial_gpu.clear()
    gradient = torch.autograd.grad(found, scores, cotangent)[0]
    wanted = torch.autograd.grad(expected, exact, cotangent.double())[0]
    torch.testing.assert_close(gradient.double(), wanted, rtol=4 * ROUNDING[dtype], atol=4 * ROUNDING[dtype])
    names = (
        ["edge_softmax_gradient_parts", "aggregate", "edge_softmax_gradient_apply"]
        if parts
        else ["edge_softmax_gradient"]
    )
    assert serial_gpu == names
    torch.testing.assert_close(gsb.edge_softmax(graph.transpose(), scores, "src"), found, rtol=0, atol=0)


@pytest.mark.parametrize("parts", [False, True], ids=["whole rows", "parts"])
def test_infinities_and_nan_stay_in_their_rows(parts, request, serial_gpu):
    """Parts of -inf alone beside others; a row of -inf alone; +inf and NaN in one part of many."""
    if parts:
        request.getfixturevalue("short_parts")
    row = torch.repeat_interleave(torch.arange(5), 60)
    graph = gsb.Graph.from_coo(row, torch.arange(300) % 7, (5, 7))
    scores = torch.randn(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    scores[:17], scores[60:120], scores[130, 0], scores[190, 1] = -torch.inf, -torch.inf, torch.inf, torch.nan
    found = gsb.edge_softmax(graph, scores)
    torch.testing.assert_close(found, softmax_of(scores, row, 5), rtol=1e-11, atol=1e-11, equal_nan=True)
    assert (found[:17] == 0).all() and torch.isfinite(found[17:60]).all() and found[60:120].isnan().all()
    assert found[120:180, 0].isnan().all() and torch.isfinite(found[120:180, 1]).all()
    assert found[180:240, 1].isnan().all() and torch.isfinite(found[240:]).all()


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "reduce, width, mean, parts", [("max", 1, 10, False), ("min", 3, 40, False), ("max", 4, 40, True)]
)
def test_maxima_of_few_features(reduce, width, mean, parts, request, serial_gpu):
    """Both directions; one NaN, which its row has as its result."""
    if parts:
        request.getfixturevalue("short_parts")
    graph, row = hub_graph(mean)
    col = torch.arange(len(row)) * 7 % 11
    x = torch.randn(11, width, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    w = torch.rand(len(row), dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    terms = x[col] * w[:, None]
    at, kind = row[:, None].expand(-1, width), {"max": "amax", "min": "amin"}[reduce]
    expected = torch.zeros(7, width, dtype=torch.float64).scatter_reduce(0, at, terms, kind, include_self=False)
    found = gsb.spmm(graph, x, w, reduce=reduce)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    cotangent = torch.randn(7, width, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    gradients = (torch.autograd.grad(out, x, cotangent)[0] for out in (found, expected))
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)
    w[row == 4] = torch.where(torch.arange(int((row == 4).sum())) == 5, torch.nan, w[row == 4])
    found = gsb.spmm(graph, x.detach(), w, reduce=reduce)
    assert found[4].isnan().all() and torch.isfinite(found[[0, 1, 2, 3, 5, 6]]).all()
