"""Batches: ``torch.vmap`` over operators, and backward passes over a batch of cotangents, against one at a time."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.functional import jacobian

import gnn_sparse_backend as gsb

ROWS, COLS, EDGES = 5, 6, 17


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ends():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, ROWS, (EDGES,), generator=generator), torch.randint(0, COLS, (EDGES,), generator=generator)


GRAPH = gsb.Graph.from_coo(*ends(), (ROWS, COLS))
REL = gsb.RelGraph.from_triples(ends()[1], ends()[0], torch.arange(EDGES) % 3, (ROWS, COLS), 3)
W, E = draw(3, 4, 2, seed=2), draw(EDGES, seed=3)
X, Y = draw(COLS, 4), draw(ROWS, 4)
RELATION, AT = torch.arange(7) % 3, torch.tensor([0, 2, 2, 1, 0, 4, 4])
CALLS = {
    "spmm": (lambda x: gsb.spmm(GRAPH, x, E, "mean"), (COLS, 4)),
    "spmm of weights": (lambda w: gsb.spmm(GRAPH, X, w), (EDGES,)),
    "sddmm": (lambda x: gsb.sddmm(GRAPH, Y, x), (COLS, 4)),
    "max": (lambda x: gsb.spmm(GRAPH, x, reduce="max"), (COLS, 4)),
    "last max": (
        lambda x: gsb.aggregate(GRAPH, "mul(x0, x1)", [("u", x), ("e", E[:, None])], "max", ties="last"),
        (COLS, 4),
    ),
    "prod": (lambda x: gsb.aggregate(GRAPH, "x0", [("u", x)], "prod"), (COLS, 2)),
    "attention": (lambda x: gsb.attention(GRAPH, Y, x, x), (COLS, 4)),
    "edge_softmax": (lambda e: gsb.edge_softmax(GRAPH, e), (EDGES, 2)),
    "gather_mm": (lambda a: gsb.gather_mm(a, W, RELATION, AT), (5, 4)),
    "gather_mm of matrices": (
        lambda w: gsb.gather_mm(Y, w, RELATION, AT),
        (3, 4, 2),
    ),
    "segment_mm": (lambda a: gsb.segment_mm(a, W, torch.tensor([2, 0, 3])), (5, 4)),
    "rgms": (lambda x: gsb.rgms(REL, x, W), (COLS, 4)),
    "rgms of matrices": (lambda w: gsb.rgms(REL, X, w, E), (3, 4, 2)),
}


@pytest.mark.parametrize("name", CALLS)
def test_cotangents_in_a_batch(name, monkeypatch):
    monkeypatch.setattr("gnn_sparse_backend.ops.message.reductions.argmax_scatter.NARROW_PAYS", 0)
    call, shape = CALLS[name]
    x = draw(*shape, seed=4)
    torch.testing.assert_close(jacobian(call, x, vectorize=True), jacobian(call, x))


@pytest.mark.skipif(not hasattr(torch.library, "register_vmap"), reason="PyTorch 2.5 has register_vmap")
@pytest.mark.parametrize("name", CALLS)
def test_vmap(name):
    call, shape = CALLS[name]
    x = draw(3, *shape, seed=5)
    torch.testing.assert_close(torch.vmap(call)(x), torch.stack([call(each) for each in x]))
