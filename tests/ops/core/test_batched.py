"""Batches: ``torch.vmap`` over operators, and backward passes over a batch of cotangents, against one at a time."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.functional import jacobian

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.ops.message.operators import aggregate

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


def test_a_batch_of_nothing():
    x = draw(0, COLS, 4)
    for call in (CALLS["spmm"][0], CALLS["attention"][0], CALLS["rgms"][0]):
        assert torch.vmap(call)(x).shape == (0, *call(draw(COLS, 4)).shape)


class Gather(torch.autograd.Function):
    """Somebody else's function, in whose backward an operator of ours runs."""

    @staticmethod
    def forward(x):
        return x[GRAPH.indices.long()]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return aggregate(message_op("x0", ("edge",), "sum"), OUT, grad)


OUT = gsb.Graph.from_coo(GRAPH.indices.long(), torch.arange(EDGES), (COLS, EDGES))


def test_an_operator_in_the_backward_pass_of_others():
    x, cotangents = draw(COLS, 4).requires_grad_(), draw(3, EDGES, 4, seed=6)
    plain, ours = x[GRAPH.indices.long()], Gather.apply(x)

    def found(y, cotangent, **how):
        return torch.autograd.grad(y, x, cotangent, retain_graph=True, **how)[0]

    expected = torch.stack([found(plain, each) for each in cotangents])
    torch.testing.assert_close(found(ours, cotangents, is_grads_batched=True), expected)
    torch.testing.assert_close(torch.vmap(lambda each: found(ours, each))(cotangents), expected)
    tangent = torch.func.jvp(lambda each: found(ours, each), (cotangents[0],), (cotangents[1],))[1]
    torch.testing.assert_close(tangent, expected[1])
    for transform in (torch.func.jacrev, torch.func.grad):
        of = transform(lambda x: Gather.apply(x).square().sum())
        torch.testing.assert_close(of(x.detach()), transform(lambda x: x[GRAPH.indices.long()].square().sum())(x))


def test_batches_of_batches():
    """A Jacobian by batches within one by batches."""
    call, shape = CALLS["spmm"]
    x = draw(*shape)

    def inner(x):
        return jacobian(lambda x: call(x).sin(), x, vectorize=True, create_graph=True).square().sum((0, 1))

    torch.testing.assert_close(jacobian(inner, x, vectorize=True), jacobian(inner, x))
