"""Arithmetic on whole node features around messages: what it gives, and that nobody sees that it was late."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import LazyTensor, rows

dgl = pytest.importorskip("dgl")
pytest.importorskip("torch_geometric")

from dgl import function as fn  # noqa: E402
from dgl.nn import GATConv, GraphConv, SAGEConv  # noqa: E402
from torch_geometric import nn as pyg  # noqa: E402

from tests.integrations.dgl.oracle import agree, multigraph  # noqa: E402
from tests.integrations.lazy.mapping import OfScope  # noqa: E402
from tests.integrations.pyg import pair  # noqa: E402

NODES = 40


@pytest.fixture
def graph():
    return multigraph(NODES, 300)


def features(width=6, dtype=torch.float64, nodes=NODES):
    return torch.randn(nodes, width, dtype=dtype, generator=torch.Generator().manual_seed(3))


def summed(graph, x):
    graph.srcdata["h"] = x
    graph.update_all(fn.copy_u("h", "m"), fn.sum("m", "out"))
    return graph.dstdata["out"]


def scale(graph, dtype=torch.float64):
    return graph.out_degrees().clamp(min=1).to(dtype).pow(-0.5).unsqueeze(1)


@pytest.mark.usefixtures("every_size")
class TestDgl:
    @pytest.mark.parametrize(
        ("layer", "counted"),
        [
            (lambda: GraphConv(6, 6, allow_zero_in_degree=True, activation=torch.relu), 1),
            (lambda: GraphConv(6, 3, allow_zero_in_degree=True), 1),
            (lambda: GATConv(6, 3, 2, allow_zero_in_degree=True, residual=True), 3),
            (lambda: SAGEConv(6, 5, "mean", activation=torch.tanh), 1),
        ],
        ids=["gcn", "narrowing gcn", "gat", "sage"],
    )
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_layers(self, graph, layer, counted, dtype):
        one = layer().to(dtype)
        call = nn.Module()
        call.layer, call.forward = one, lambda x: one(graph, x)
        assert agree(call, features(dtype=dtype)).get("rows", (0, {})) == (counted, {})

    def test_scaling_goes_to_the_edges(self, graph):
        """No pass over the nodes: the features are scaled where they are gathered, in both directions."""
        layer = OfScope(graph, lambda g, x: summed(g, x * scale(g)))
        assert agree(layer, features()).keys() == {"gspmm"}

    def test_scaling_and_edge_weights(self, graph):
        def layer(g, x, w):
            g.edata["w"], g.srcdata["h"] = w, x / scale(g)
            g.update_all(fn.u_mul_e("h", "w", "m"), fn.mean("m", "out"))
            return g.dstdata["out"]

        weights = features(1, nodes=graph.num_edges())
        assert agree(OfScope(graph, layer), features(), weights).keys() == {"gspmm_mean"}

    @pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
    @pytest.mark.parametrize("arithmetic", [lambda x, s: x * s, lambda x, s: (x - s) * x + 1], ids=["scaled", "more"])
    def test_reductions(self, graph, reduce, arithmetic):
        def layer(g, x):
            g.srcdata["h"] = arithmetic(x, scale(g))
            g.update_all(fn.copy_u("h", "m"), getattr(fn, reduce)("m", "out"))
            return g.dstdata["out"]

        agree(OfScope(graph, layer), features())

    def test_what_is_written_to_afterwards_was_read_before(self, graph):
        def layer(g, x):
            y = x * 2.0
            scaled = y * scale(g) + 1.0
            y += 5.0
            y[:3] = 0.0
            later = y.detach().clone()
            once = later * scale(g)
            torch.mul(later, 2.0, out=later)
            scaled = scaled + once
            return scaled - summed(g, y)

        agree(OfScope(graph, layer), features())

    @pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
    def test_who_writes_without_gradients_takes_none(self, graph, without):
        def layer(g, x):
            scaled = x * scale(g) + 1.0
            with without():
                torch.zeros(3).add_(1.0)  # whatever is written to, features are computed before
            return scaled - summed(g, x)

        agree(OfScope(graph, layer), features())

    def test_every_result_is_an_ordinary_tensor(self, graph):
        kept = []

        def layer(g, x):
            scaled = x * scale(g)
            more = scaled + 1.0
            kept.append(more)
            return {"scaled": more * 2.0, "of a tuple": (scaled * 3.0,), "sum": summed(g, scaled)}

        x = features()
        with gsb.enabled("dgl"):
            found = OfScope(graph, layer)(x)
        expected = x * scale(graph)
        for tensor, wanted in ((found["scaled"], (expected + 1) * 2), (found["of a tuple"][0], expected * 3)):
            assert type(tensor) is torch.Tensor
            torch.testing.assert_close(tensor, wanted)
        assert type(found["sum"]) is torch.Tensor
        torch.testing.assert_close(kept[0], expected + 1)  # a variable of the layer that somebody has kept

    def test_a_step_of_an_optimiser_later_changes_nothing(self, graph):
        weight = nn.Parameter(torch.ones(6, dtype=torch.float64))
        table = nn.Parameter(features())
        with gsb.enabled("dgl"):
            found = OfScope(graph, lambda g, x: (table * scale(g) * weight, x * weight + 1.0))(features())
            with torch.no_grad():
                weight.zero_()
                table.zero_()
        torch.testing.assert_close(found[0].detach(), features() * scale(graph))
        torch.testing.assert_close(found[1].detach(), features() + 1)

    def test_scopes_in_scopes(self, graph):
        inner = OfScope(graph, lambda g, x: (x * scale(g) + 1.0) * 2.0)
        outer = OfScope(graph, lambda g, x: summed(g, inner(x * 3.0) - x))
        agree(outer, features())

    def test_an_error_inside_leaves_nothing_watched(self, graph):
        def layer(g, x):
            x * scale(g)
            raise KeyError("mine")

        with gsb.enabled("dgl"), pytest.raises(KeyError):
            OfScope(graph, layer)(features())
        assert rows.watching() is None
        assert type(features() * 2.0) is torch.Tensor

    def test_under_autocast_no_type_changes(self, graph):
        layer = OfScope(graph, lambda g, x: x * scale(g, torch.float32) + summed(g, x.bfloat16() * 2.0))
        with torch.autocast("cpu", torch.bfloat16):
            expected = layer(features(dtype=torch.float32))
            with gsb.enabled("dgl"):
                found = layer(features(dtype=torch.float32))
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)

    @pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16, torch.float32])
    @pytest.mark.parametrize("flipped", [False, True])
    def test_an_operand_of_a_narrower_type_is_read_as_it_is(self, graph, narrow, flipped):
        """Its numbers are those of the wider type, and its gradient is rounded once."""
        wide = torch.float64 if narrow is torch.float32 else torch.float32
        s, b = scale(graph, wide), features(1, wide)
        layer = OfScope(graph, lambda g, x: (s - x if flipped else x - s) * s + b)
        x = features(dtype=narrow).requires_grad_()
        expected = layer(x)
        (wanted,) = torch.autograd.grad(expected, x, features(dtype=wide))
        gsb.integrations.reset_status()
        with gsb.enabled("dgl"):
            found = layer(x)
        assert gsb.status().to_dict()["calls"]["dgl"]["rows"]["ours"] == 1
        torch.testing.assert_close(found, expected)
        (grad,) = torch.autograd.grad(found, x, features(dtype=wide))
        torch.testing.assert_close(grad, wanted, rtol=torch.finfo(narrow).eps, atol=0)

    @pytest.mark.parametrize("bias", [False, True])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_a_narrowing_map_goes_before_a_scale(self, graph, bias, dtype):
        """Three features are scaled in the place of six, at the edges."""
        seen = []

        def layer(g, x, w, b):
            mapped = nn.functional.linear(x * 2.0 * scale(g, dtype), w, b if bias else None)
            seen.append(type(mapped))
            return summed(g, mapped)

        given = [features(w, dtype, n) for w, n in ((6, NODES), (6, 3))], torch.randn(3, dtype=dtype)
        agree(OfScope(graph, layer), *given[0], given[1])
        assert LazyTensor in seen

    @pytest.mark.parametrize(
        "layer",
        [
            lambda x, s, w: (x * s) @ w.t(),
            lambda x, s, w: (s / (x + 2)) @ w[:3].t(),
            lambda x, s, w: (x * s * x) @ w[:3].t(),
            lambda x, s, w: (x * s * w[:1]) @ w[:3].t(),
        ],
        ids=["no narrower", "not linear", "a square", "a scale for each feature"],
    )
    def test_other_maps_go_last(self, graph, layer):
        agree(OfScope(graph, lambda g, x, w: layer(x.square(), scale(g), w)), features(), features(6, nodes=6))

    def test_a_narrowing_map_under_autocast(self, graph):
        layer = GraphConv(6, 3, allow_zero_in_degree=True)
        x = features(dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            expected = layer(graph, x)
            with gsb.enabled("dgl"):
                found = layer(graph, x)
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_types_are_rounded_once(self, graph, dtype):
        x = features(dtype=dtype)
        layer = OfScope(graph, lambda g, x: (x * scale(g, dtype) + 1.0) * x)
        with gsb.enabled("dgl"):
            found = layer(x)
        wide = x.double()
        expected = (wide * scale(graph, dtype).double() + 1.0) * wide
        torch.testing.assert_close(found, expected.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-6)

    def test_not_finite(self, graph):
        x = features()
        x[0, 0], x[1, 1], x[2, 2] = float("inf"), float("nan"), float("-inf")
        layer = OfScope(graph, lambda g, x: summed(g, x * scale(g)) * 0.5 + x)
        expected = layer(x)
        with gsb.enabled("dgl"):
            found = layer(x)
        torch.testing.assert_close(found, expected, equal_nan=True)

    def test_gradients_of_gradients(self, graph):
        layer = OfScope(graph, lambda g, x, w: (summed(g, x * scale(g)) * w + 1.0) * x)
        given = features(2).requires_grad_(), features(1).requires_grad_()
        with gsb.enabled("dgl"):
            assert torch.autograd.gradcheck(layer, given)
            assert torch.autograd.gradgradcheck(layer, given, fast_mode=True)


@pytest.mark.usefixtures("every_size")
class TestPyg:
    @pytest.mark.parametrize(
        "layer",
        [
            lambda: pyg.GATConv(6, 3, 2),
            lambda: pyg.SAGEConv(6, 2),
            lambda: pyg.SAGEConv(6, 6, aggr="sum"),
            lambda: pyg.GraphConv(6, 2, aggr="mean"),
            lambda: pyg.TAGConv(6, 2),
            lambda: pyg.ChebConv(6, 2, 3),
            lambda: pyg.ARMAConv(6, 3),
            lambda: pyg.ResGatedGraphConv(6, 6),
        ],
        ids=lambda layer: type(layer()).__name__,
    )
    @pytest.mark.parametrize("edges", ["random", "none", "hub"])
    def test_layers(self, layer, edges):
        pair.check_pair(layer().double(), pair.features(6), pair.edges(edges))

    def test_hooks_see_ordinary_tensors(self):
        layer, seen = pyg.GATConv(6, 3, 2), []
        layer.register_forward_hook(lambda module, given, result: seen.append(type(result)))
        with gsb.enabled("pyg"):
            layer(features(dtype=torch.float32), torch.randint(0, NODES, (2, 90)))
        assert seen == [torch.Tensor]

    def test_traced_by_fx_as_without(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = pyg.SAGEConv(6, 2)

            def forward(self, x, edge_index):
                return self.layer(x, edge_index).relu()

        with gsb.enabled("pyg"):
            traced = pyg.to_hetero_transformer.Transformer(Model()).gm  # which makes each layer one node
        assert [node.op for node in traced.graph.nodes].count("call_module") == 1

    def test_copies_of_layers_work(self):
        with gsb.enabled("pyg"):
            layer = copy.deepcopy(pyg.SAGEConv(6, 2))
            assert type(layer(features(dtype=torch.float32), torch.randint(0, NODES, (2, 90)))) is torch.Tensor


def test_small_features_are_left_alone(graph, monkeypatch):
    made = []
    monkeypatch.setattr(rows, "_started", lambda *given: made.append(given))
    x = torch.randn(rows.LEAST // 64, 64)
    with rows.watched("dgl", (), trusted=True, worth_it=True):
        assert type(x[:-1] * 2.0) is torch.Tensor and not rows._is_worth_it(x[:-1])
        assert rows._is_worth_it(x) and not rows._is_worth_it(x.t()) and not rows._is_worth_it(nn.Parameter(x))
        assert not rows._is_worth_it(x.flatten()) and not rows._is_worth_it(x.long())


def test_one_step_is_pytorchs(monkeypatch):
    monkeypatch.setattr(rows, "LEAST", 1)
    x = features()
    gsb.integrations.reset_status()
    with rows.watched("dgl", (), trusted=True, worth_it=True):
        lazy = x * 2.0
        assert type(lazy) is LazyTensor
    assert type(lazy) is torch.Tensor and torch.equal(lazy, x * 2.0)
    assert gsb.status().to_dict()["calls"] == {}
