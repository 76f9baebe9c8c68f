"""Linear maps that wait, in layers of DGL."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import LazyTensor

dgl = pytest.importorskip("dgl")
pytest.importorskip("torch_geometric")

from dgl import function as fn  # noqa: E402

from tests.integrations.dgl.oracle import agree, bipartite, multigraph, run  # noqa: E402
from tests.integrations.lazy.mapping import NARROWING, WIDENING, OfScope, said  # noqa: E402

pytestmark = pytest.mark.usefixtures("every_size")


def mapped_and_summed(graph, x, matrix, op=fn.sum, of=lambda mapped: mapped):
    graph.srcdata["h"] = of(x @ matrix)
    graph.update_all(fn.copy_u("h", "m"), op("m", "out"))
    return graph.dstdata["out"]


class TestDgl:
    @pytest.fixture
    def block(self):
        """Many sources, few destinations: a map of all sources costs more, even where it narrows."""
        ends = torch.randint(300, (200,), generator=torch.Generator().manual_seed(1))
        return bipartite(ends % 20, ends, (20, 300))

    @pytest.mark.parametrize("op", [fn.sum, fn.mean, fn.max])
    @pytest.mark.parametrize("widths", [WIDENING, NARROWING], ids=["wider", "narrower"])
    def test_own_layers(self, asked, block, op, widths):
        given = torch.randn(300, widths[0]).double(), torch.randn(*widths).double()
        layer = OfScope(block, lambda g, x: mapped_and_summed(g, x, layer.matrix, op))
        layer.matrix = nn.Parameter(given[1])
        for _ in range(2):
            agree(layer, given[0])
        assert said(asked) == [True] * (0 if op is fn.max else 2)

    @pytest.mark.parametrize("norm", ["both", "left", "right", "none"])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_graph_convolution(self, asked, block, norm, weighted):
        layer = dgl.nn.GraphConv(*NARROWING, norm=norm, allow_zero_in_degree=True).double()
        call = nn.Module()
        call.layer = layer
        call.forward = lambda x, *w: layer(block, x, edge_weight=w[0] if w else None)
        given = (torch.randn(300, 32).double(), *((torch.rand(200, 1).double(),) if weighted else ()))
        for _ in range(2):
            agree(call, *given)
        assert said(asked) == [True, True]

    @pytest.mark.parametrize("aggregator", ["mean", "gcn", "pool", "lstm"])
    def test_sage(self, block, aggregator):
        layer = dgl.nn.SAGEConv(*NARROWING, aggregator).double()
        call = nn.Module()
        call.layer, call.forward = layer, lambda *x: layer(block, x)
        for _ in range(2):
            if aggregator != "lstm":  # degrees of zero
                agree(call, torch.randn(300, 32).double(), torch.randn(20, 32).double())

    @pytest.mark.parametrize("layer", [dgl.nn.GATConv, dgl.nn.GATv2Conv])
    def test_attention(self, layer):
        layer, graph = layer(4, 16, 2, allow_zero_in_degree=True).double(), multigraph(40, 300)
        call = nn.Module()
        call.layer, call.forward = layer, lambda x: layer(graph, x)
        for _ in range(2):
            agree(call, torch.randn(40, 4).double())

    def test_both_of_a_map_and_its_sum(self, always, block):
        kept = []

        def layer(g, x, m):
            mapped = x @ m
            kept.append(mapped)
            g.srcdata["h"] = mapped
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
            return g.dstdata["out"]

        x, m = torch.randn(300, 32).double(), torch.randn(32, 4).double().requires_grad_()
        with gsb.enabled("dgl"):
            OfScope(block, layer)(x, m)
        assert type(kept[0]) in (LazyTensor, torch.Tensor)
        torch.testing.assert_close(kept[0] + 0.0, x @ m)

    def test_a_map_that_is_kept_and_read_after_a_step_of_the_optimiser(self, always, block):
        """By a matrix that the step has changed: it is what it was."""
        kept, x, m = [], torch.randn(300, 32).double(), nn.Parameter(torch.randn(32, 4).double())
        layer = OfScope(block, lambda g, x: (kept.append(x @ m), mapped_and_summed(g, x, m, of=lambda h: kept[-1]))[1])
        optimiser, expected = torch.optim.SGD([m], 0.1), []
        with gsb.enabled("dgl"):
            for _ in range(2):
                expected.append((x @ m).detach())
                optimiser.zero_grad()
                layer(x).sum().backward()
                assert type(kept[-1]) is torch.Tensor
                optimiser.step()
        for found, wanted in zip(kept, expected):
            torch.testing.assert_close(found.detach(), wanted)

    def test_a_map_that_is_kept_is_an_ordinary_tensor_once_the_backend_is_off(self, always, block):
        kept, x, m = [], torch.randn(300, 32).double(), nn.Parameter(torch.randn(32, 4).double())
        layer = OfScope(block, lambda g, x: (kept.append(x @ m), mapped_and_summed(g, x, m, of=lambda h: kept[-1]))[1])
        with gsb.enabled("dgl"):
            layer(x)
        assert type(kept[0]) is torch.Tensor
        torch.testing.assert_close(kept[0], x @ m)

    @pytest.mark.parametrize("norm", ["both", "right"])
    def test_under_autocast(self, asked, block, norm):
        layer = dgl.nn.GraphConv(*NARROWING, norm=norm, allow_zero_in_degree=True)
        call = nn.Module()
        call.layer, call.forward = layer, lambda x: layer(block, x)
        x = torch.randn(300, 32)
        with torch.autocast("cpu", torch.bfloat16):
            expected = run(call, (x,))
            with gsb.enabled("dgl"):
                found = run(call, (x,))
        assert said(asked) == [True]
        for one, other in zip(found, expected):
            assert one.dtype is other.dtype
            assert (one.double() - other.double()).norm() < 2e-2 * other.double().norm()

    def test_gradients_of_gradients(self, always, block):
        layer = OfScope(block, lambda g, x, m: mapped_and_summed(g, x, m, fn.mean).square())
        given = torch.randn(300, 2).double().requires_grad_(), torch.randn(2, 1).double().requires_grad_()
        with gsb.enabled("dgl"):
            assert torch.autograd.gradgradcheck(layer, given, fast_mode=True)
