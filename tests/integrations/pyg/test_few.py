"""PyG on graphs of a few edges: steps of layers go straight to operators, and nobody can tell but by the clock."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.utils import scatter, softmax

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.few.listed import SEEN
from gnn_sparse_backend.integrations.pyg.few import direct
from tests.integrations.pyg.features import steps
from tests.integrations.pyg.pair import EDGES, NODES, calls, edges, features, step

pytestmark = pytest.mark.few
WIDTH = 260
"""Features that make a step of a few edges more than tiny."""


@pytest.fixture(autouse=True)
def nothing_learnt(monkeypatch):
    direct._ways.clear()
    from gnn_sparse_backend.planner.cpu.listed import FEW

    monkeypatch.setattr(FEW, "tiny", 0)


def layers() -> dict:
    """Layers, and what they are called with beside features and edges."""
    torch.manual_seed(0)
    values, attributes = (lambda e: torch.rand(e.shape[1])), (lambda e: torch.randn(e.shape[1], 8))
    return {
        "GIN": (pyg.GINConv(torch.nn.Linear(8, 6)), None),
        "GINE": (pyg.GINEConv(torch.nn.Linear(8, 6)), attributes),
        "GINE with a map": (pyg.GINEConv(torch.nn.Linear(8, 6), edge_dim=8), attributes),
        "SAGE": (pyg.SAGEConv(8, 6), None),
        "SAGE max": (pyg.SAGEConv(8, 6, aggr="max"), None),
        "GCN": (pyg.GCNConv(8, 6), None),
        "GCN with values": (pyg.GCNConv(8, 6), values),
        "GraphConv": (pyg.GraphConv(8, 6, aggr="min"), values),
        "against": (pyg.GraphConv(8, 6, flow="target_to_source"), values),
        "GAT": (pyg.GATConv(8, 3, heads=2), None),
        "GAT, dropout": (pyg.GATConv(8, 3, heads=2, dropout=0.5).eval(), None),
        "GAT with attributes": (pyg.GATConv(8, 3, heads=2, edge_dim=8), attributes),
        "GATv2": (pyg.GATv2Conv(8, 3, heads=2), None),
        "Transformer": (pyg.TransformerConv(8, 3, heads=2), None),
        "Transformer with attributes": (pyg.TransformerConv(8, 3, heads=2, edge_dim=8), attributes),
        "EdgeConv": (pyg.EdgeConv(torch.nn.Linear(16, 6)), None),
        "PNA": (pyg.PNAConv(8, 6, ["mean", "max", "std"], ["identity"], deg=torch.tensor([1, 4, 2])), None),
        "GINE mul": (pyg.GINEConv(torch.nn.Linear(8, 6), aggr="mul"), attributes),
        "LEConv": (pyg.LEConv(8, 6), None),
        "RGCN": (pyg.RGCNConv(8, 6, 3), lambda e: torch.arange(e.shape[1]) % 3),
        "RGCN with bases": (pyg.RGCNConv(8, 6, 3, num_bases=2), lambda e: torch.arange(e.shape[1]) % 3),
        "Cheb": (pyg.ChebConv(8, 6, 2), None),
        "APPNP": (pyg.APPNP(2, 0.1), None),
    }


def compare(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        if expected[name] is None:
            assert found[name] is None
        else:
            assert type(found[name]) is torch.Tensor
            torch.testing.assert_close(found[name], expected[name], msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", layers())
@pytest.mark.parametrize("which", EDGES)
def test_layers(name, which):
    """Three calls: the first learns, the second knows, the third has other features and edges of the kind."""
    layer, more = layers()[name]
    layer = layer.double()
    index = edges(which)
    others = index.flip(1).contiguous()
    rest = () if more is None else (more(index),)
    rest = tuple(x.double() if x.is_floating_point() else x for x in rest)
    given = [(features(8), index, *rest), (features(8), index, *rest), (features(8, seed=3), others, *rest)]
    expected = [step(layer, *each) for each in given]
    with gsb.enabled("pyg"):
        found = [step(layer, *each) for each in given]
    for one, other in zip(found, expected):
        compare(one, other)


@steps
@pytest.mark.parametrize(
    ("name", "counted"),
    [("GIN", "copy.sum"), ("GINE", "message.sum"), ("SAGE", "copy.mean"), ("GAT", "softmax"), ("GATv2", "softmax")],
)
def test_what_is_learnt_is_counted_as_what_it_is(name, counted):
    layer, more = layers()[name]
    index = edges()
    rest = () if more is None else (more(index),)
    with gsb.enabled("pyg"):
        layer(features(8, dtype=torch.float32), index, *rest)
        learnt = [way for way in direct._ways.values() if way is not None]
        assert learnt
        direct_calls = calls()[counted]
        layer(features(8, dtype=torch.float32), index, *rest)
        assert calls()[counted] == direct_calls + 1


DROPPING = {
    "GAT": lambda: pyg.GATConv(8, 3, heads=2, dropout=0.5),
    "GAT with attributes": lambda: pyg.GATConv(8, 3, heads=2, edge_dim=8, dropout=0.5),
    "GATv2": lambda: pyg.GATv2Conv(8, 3, heads=2, dropout=0.5),
    "Transformer": lambda: pyg.TransformerConv(8, 3, heads=2, dropout=0.5),
    "SuperGAT": lambda: pyg.SuperGATConv(8, 3, heads=2, dropout=0.5, is_undirected=True),
    "Hypergraph": lambda: pyg.HypergraphConv(8, 6, dropout=0.5),
    "RGAT": lambda: pyg.RGATConv(8, 3, 3, heads=2, dropout=0.5),
    "FA": lambda: pyg.FAConv(8, dropout=0.5),
    "ARMA": lambda: pyg.ARMAConv(8, 6, 2, 2, dropout=0.5),
    "GAT, a model": lambda: pyg.GAT(8, 16, 2, 6, heads=2, dropout=0.5),
}


@pytest.mark.parametrize("name", DROPPING)
def test_layers_that_drop_messages_draw_what_they_draw_alone(name):
    """In training, in evaluation between, and what is drawn afterwards."""
    edge_index = edges()
    x = features(8).detach()
    more = {"RGAT": (torch.arange(edge_index.shape[1]) % 3,), "FA": (edge_index,)}.get(name, ())
    if name.endswith("attributes"):
        more = (torch.randn(edge_index.shape[1], 8, dtype=torch.float64),)

    def run() -> list[torch.Tensor]:
        torch.manual_seed(1)
        layer, found = DROPPING[name]().double(), []
        for turn in range(4):
            layer.train(turn != 2)
            given = (x, x, edge_index) if name == "FA" else (x, edge_index, *more)
            out = layer(*given)
            found += [out.detach(), *torch.autograd.grad(out.square().sum(), layer.parameters(), allow_unused=True)]
        return [*found, torch.rand(3)]

    expected = run()
    with gsb.enabled("pyg"):
        actual = run()
    for one, other in zip(actual, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


def test_pairs_of_features_and_sizes():
    layer, index = pyg.SAGEConv((8, 5), 6), torch.stack((torch.randint(30, (90,)), torch.randint(NODES, (90,))))
    x = features(8, 30, torch.float32), features(5, NODES, torch.float32)
    only = x[0], None
    for given in ((x, index), (x, index, (30, NODES)), (only, index, (30, NODES))):
        expected = step(layer, *given)
        with gsb.enabled("pyg"):
            for _ in range(2):
                compare(step(layer, *given), expected)
    with gsb.enabled("pyg"), pytest.raises(ValueError, match="expected size 31"):
        layer(x, index, (31, NODES))


def test_attributes_that_change_are_seen():
    layer, index, x = pyg.GATConv(8, 4), edges(), features(8, dtype=torch.float32)

    def results():
        found = []
        for slope in (0.2, 0.5, 0.2):
            layer.negative_slope = slope
            found.append(step(layer, x, index))
        layer.flow = "target_to_source"
        found.append(step(layer, x, index))
        layer.flow = "source_to_target"
        return found

    expected = results()
    with gsb.enabled("pyg"):
        for _ in range(2):
            for one, other in zip(results(), expected):
                compare(one, other)


def test_attention_that_is_handed_out():
    index, x = edges(), features(8, dtype=torch.float32)
    for layer in (pyg.GATConv(8, 4, heads=2), pyg.TransformerConv(8, 4, heads=2)):

        def looked_at(layer=layer):
            out, (found, alpha) = layer(x, index, return_attention_weights=True)
            alpha.retain_grad()
            (out.sum() + (alpha * alpha).sum()).backward()
            return out.detach(), found, alpha.detach().clone(), alpha.grad

        expected = looked_at()
        with gsb.enabled("pyg"):
            for _ in range(3):
                for one, other in zip(looked_at(), expected):
                    torch.testing.assert_close(one, other)
        assert getattr(layer, "_alpha", None) is None


def test_hooks_are_called():
    layer, index, x = pyg.GraphConv(8, 6), edges(), features(8, dtype=torch.float32)
    with gsb.enabled("pyg"):
        for _ in range(2):
            layer(x, index)
        seen = []
        handle = layer.register_message_forward_hook(lambda module, given, out: seen.append(out.shape))
        layer(x, index)
        handle.remove()
        layer(x, index)
    assert seen == [(90, 8)]


def test_methods_of_users_are_called():
    called = []

    class Mine(pyg.GraphConv):
        def message(self, x_j, edge_weight):
            called.append(x_j.shape)
            return x_j * len(called)

    layer, index, x = Mine(8, 6), edges(), features(8, dtype=torch.float32)
    with gsb.enabled("pyg"):
        for _ in range(3):
            layer(x, index, x.new_ones(index.shape[1]))  # PyG 2.5 wants some
    assert len(called) == 3


@pytest.mark.parametrize("value", [-1, NODES])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("name", ["GIN", "SAGE max", "GAT", "EdgeConv", "GCN", "RGCN"])
def test_errors_are_those_of_pyg(name, end, value):
    layer, more = layers()[name]
    index, x = edges().clone(), features(8, dtype=torch.float32)
    rest = () if more is None else (more(index),)
    with gsb.enabled("pyg"):
        layer(x, index, *rest)
    index[end, 5] = value

    def kind():
        try:
            layer(x, index, *rest)
        except Exception as error:
            return type(error), str(error)
        return None

    expected = kind()
    with gsb.enabled("pyg"):
        found = kind()
    assert found == expected


@pytest.mark.parametrize("name", ["GINE", "SAGE max", "GraphConv", "GCN with values", "GIN", "GAT"])
def test_features_may_be_written_to_before_the_gradient(name):
    layer, more = layers()[name]
    index = edges()
    rest = () if more is None else (more(index),)

    def residual():
        h = features(8, dtype=torch.float32) * 1.0
        given = [h, *(x.clone() for x in rest)]
        out = layer(given[0], index, *given[1:])
        h += 1
        for x in given[1:]:
            x.mul_(2)
        return torch.autograd.grad(out.sum(), list(layer.parameters()), allow_unused=True)

    try:
        expected = residual()
    except RuntimeError:
        expected = None  # PyG has saved what was written to
    with gsb.enabled("pyg"):
        for _ in range(2):
            if expected is None:
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    residual()
            else:
                for one, other in zip(residual(), expected):
                    torch.testing.assert_close(one, other)


def test_an_index_that_is_written_to_is_read_again():
    layer, index, x = pyg.GINConv(torch.nn.Identity()), edges().clone(), features(8, dtype=torch.float32)
    with gsb.enabled("pyg"):
        for _ in range(2):
            layer(x, index)
        index[1, :10] = 3
        found = layer(x, index)
        out = layer(x, index)
        index[1, 0] = 4
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
        index.data[1, 1] = 5  # which nobody can see: the kernel reads what there is
        unseen = layer(x, index)
    index[1, 0], index[1, 1] = 3, 3
    torch.testing.assert_close(found, layer(x, index))
    index[1, 0], index[1, 1] = 4, 5
    torch.testing.assert_close(unseen, layer(x, index))


def test_second_gradients():
    layer, index = pyg.GATConv(8, 3).double(), edges()

    def function(x):
        return layer(x, index)

    with gsb.enabled("pyg"):
        function(features(8))
        assert torch.autograd.gradcheck(function, (features(8),))
        assert torch.autograd.gradgradcheck(function, (features(8),), fast_mode=True)


@steps
def test_layers_are_copied_pickled_scripted_and_compiled():
    layer, index, x = pyg.GraphConv(8, 6), edges(), features(8, dtype=torch.float32)
    expected = layer(x, index)
    with gsb.enabled("pyg"):
        for _ in range(2):
            layer(x, index)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.jit.script(layer)):
            torch.testing.assert_close(other(x, index), expected)
        torch.testing.assert_close(torch.compile(layer, backend="aot_eager")(x, index), expected)
    torch.testing.assert_close(layer(x, index), expected)


@steps
def test_switching_puts_every_class_back():
    class Other(pyg.GraphConv):  # PyG 2.5 generates methods by the name of a class
        pass

    before = {kind: kind.__dict__.get("propagate") for kind in (pyg.GraphConv, pyg.GATConv)}
    with gsb.enabled("pyg"):
        layer = Other(8, 6)  # PyG makes its methods while we are on
        layer(features(8, dtype=torch.float32), edges())
        assert hasattr(Other.propagate, "__wrapped__")
    assert not hasattr(Other.propagate, "__wrapped__")
    for kind, method in before.items():
        assert kind.__dict__.get("propagate") is method


def test_nothing_of_a_batch_is_kept():
    layer, x = pyg.GCNConv(8, 6), features(8, dtype=torch.float32)
    with gsb.enabled("pyg"):
        index = edges().clone()
        layer(x, index).sum().backward()
        gone = weakref.ref(index)
        assert len(SEEN) > 0
        del index
        gc.collect()
        assert gone() is None
        assert len(SEEN) == 0


@pytest.mark.parametrize("reduce", ["sum", "add", "mean", "max", "min", "mul"])
@pytest.mark.parametrize("shape", [(90,), (90, 1), (90, 7), (90, 2, 3)], ids=str)
def test_scatters(shape, reduce):
    index, x = edges()[1], torch.randn(shape, dtype=torch.float64).requires_grad_()
    expected = step(scatter, x, index, 0, NODES, reduce)
    with gsb.enabled("pyg"):
        from torch_geometric.utils import scatter as ours

        compare(step(ours, x, index, 0, NODES, reduce), expected)
        compare(step(ours, x, index, -x.dim(), NODES, reduce), expected)


def test_a_softmax_may_be_written_to():
    index, x = edges()[1], torch.randn(90, 2, dtype=torch.float64).requires_grad_()

    def written(softmax):
        out = softmax(x, index, None, NODES)
        out.mul_(2)
        return torch.autograd.grad((out * torch.arange(180).view(90, 2)).sum(), x)[0]

    expected = written(softmax)
    with gsb.enabled("pyg"):
        from torch_geometric.utils import softmax as ours

        torch.testing.assert_close(written(ours), expected)
