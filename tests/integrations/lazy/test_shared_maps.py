"""Scores of the same rows that wait for each other: computed together, with one gradient."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import rows
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.ops.message.shared_maps import SHARED_MAPS
from gnn_sparse_backend.structures.graph import Graph

pytest.importorskip("dgl")
pytest.importorskip("torch_geometric")

from dgl import function as fn

from tests.integrations.dgl.oracle import agree, multigraph
from tests.integrations.lazy.mapping import OfScope

NODES, HEADS, WIDTH = 40, 3, 5


def numbers(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def added(g, first, second):
    """What every edge has of its two ends."""
    g.srcdata["l"], g.dstdata["r"] = first, second
    g.apply_edges(fn.u_add_v("l", "r", "e"))
    g.update_all(fn.copy_e("e", "m"), fn.sum("m", "out"))
    return g.dstdata["out"]


def score(x, vector, dim=-1):
    return (x * vector).sum(dim).unsqueeze(-1)


def both(g, x, a, b):
    x = x.sin()  # no leaf, which an optimiser may write to
    return added(g, score(x, a), score(x, b))


def of_two_tensors(g, x, a, b):
    return added(g, score(x.sin(), a), score(x.cos(), b))


def over_other_dimensions(g, x, a, b):
    x = x.sin()
    return added(g, score(x, a), (x * b).sum((1, 2)).view(-1, 1, 1))


@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize(("layer", "joined"), [(both, True), (of_two_tensors, False), (over_other_dimensions, False)])
def test_scores_of_the_same_rows_are_joined(layer, joined, calls_to):
    calls = calls_to(rows, "SHARED_MAPS")
    vectors = [numbers(1, HEADS, WIDTH, seed=seed) for seed in (1, 2)]
    agree(OfScope(multigraph(NODES, 300), layer), numbers(NODES, HEADS, WIDTH), *vectors)
    assert bool(calls) is joined


@pytest.mark.usefixtures("every_size")
def test_rows_written_to_before_the_scores_are_used(monkeypatch):
    """Each score has the numbers of its own time."""

    def layer(g, x, a, b):
        x = x.sin()
        left = score(x, a)
        x.add_(1.0)
        return added(g, left, score(x, b))

    vectors = [numbers(1, HEADS, WIDTH, seed=seed) for seed in (1, 2)]
    module = OfScope(multigraph(NODES, 300), layer)
    expected = module(numbers(NODES, HEADS, WIDTH), *vectors)
    with gsb.enabled("dgl"):
        found = module(numbers(NODES, HEADS, WIDTH), *vectors)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("reduced", [(False, True), (True, True)])
def test_gradients_of_any_order(count, reduced):
    of = message_op("mul(x0, x1)", ("edge", "all"))
    graph = Graph._of_loops(4, torch.device("cpu"))
    operands = [numbers(4, 2, 3), *(numbers(2, 3, seed=seed) for seed in range(1, count + 1))]
    operands = [x.requires_grad_() for x in operands]

    def run(*given):
        return SHARED_MAPS(graph, given, (of, reduced))

    dims = [at for at, gone in enumerate(reduced, 1) if gone]
    for out, vector in zip(run(*operands), operands[1:]):
        torch.testing.assert_close(out, (operands[0] * vector).sum(dims, keepdim=True))
    assert torch.autograd.gradcheck(run, operands)
    assert torch.autograd.gradgradcheck(run, operands, fast_mode=True)
