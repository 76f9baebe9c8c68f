"""A linear map of features goes behind the sum of neighbours where that costs less, and gives the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.optimizer import _global_optimizer_pre_hooks
from torch.utils.checkpoint import checkpoint

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import LazyTensor, products, rows
from gnn_sparse_backend.integrations.lazy.terms import BARE, term
from gnn_sparse_backend.ops.message.programs.message import parse

dgl = pytest.importorskip("dgl")
pytest.importorskip("torch_geometric")

from dgl import function as fn  # noqa: E402
from torch_geometric import nn as pyg  # noqa: E402

from gnn_sparse_backend.integrations.dgl import lazy_edges  # noqa: E402
from gnn_sparse_backend.integrations.pyg import layers  # noqa: E402
from tests.integrations.dgl.oracle import agree, bipartite, multigraph, run  # noqa: E402
from tests.integrations.pyg import pair  # noqa: E402

WIDENING, NARROWING = (4, 32), (32, 4)


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    for module in (rows, lazy_edges, layers):
        monkeypatch.setattr(module, "LEAST", 1)


@pytest.fixture
def asked(monkeypatch):
    """What the rule said, of these gradients."""
    found = []

    def asking(*sizes, needed):
        found.append((said := rule(*sizes, needed=needed), needed))
        return said

    rule = products.sums_first
    monkeypatch.setattr(products, "sums_first", asking)
    return found


def said(asked):
    return [one for one, _ in asked]


@pytest.fixture
def always(monkeypatch):
    """The sum goes first whatever it costs."""
    monkeypatch.setattr(products, "sums_first", lambda *sizes, needed: True)


class Layer(pyg.MessagePassing):
    """A sum of neighbours of mapped features, and what else is done with these."""

    def __init__(self, widths, aggr="sum", then=lambda total, mapped: total, of=lambda mapped: mapped, by="linear"):
        super().__init__(aggr=aggr)
        matrix = torch.randn(*widths, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        self.matrix, self.then, self.of, self.by = nn.Parameter(matrix), then, of, by

    def forward(self, x, edge_index, weight=None):
        sources = x[0] if isinstance(x, tuple) else x
        if self.by == "linear":
            mapped = functional.linear(sources, self.matrix.t())
        else:
            mapped = sources @ self.matrix if self.by == "@" else torch.mm(sources, self.matrix)
        given = self.of(mapped)
        if isinstance(x, tuple):
            return self.then(self.propagate(edge_index, x=(given, x[1]), weight=weight), mapped)
        return self.then(self.propagate(edge_index, x=given, weight=weight), mapped)

    def message(self, x_j, weight):
        return x_j if weight is None else weight.view(-1, 1) * x_j


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("by", ["linear", "@", "mm"])
@pytest.mark.parametrize("widths", [WIDENING, NARROWING], ids=["wider", "narrower"])
def test_sums_and_means(asked, aggr, weighted, by, widths):
    index = pair.edges("large")
    weight = (torch.rand(index.shape[1], dtype=torch.float64, requires_grad=True),) if weighted else ()
    pair.check_pair(Layer(widths, aggr, by=by), pair.features(widths[0]), index, *weight)
    assert asked == [(widths is WIDENING, (True, True, weighted))]


def test_a_first_layer_is_spared_the_gradient_of_its_features(asked):
    layer, index = Layer((16, 16)), pair.edges("large")
    pair.check_pair(layer, pair.features(16).detach(), index)
    pair.check_pair(layer, pair.features(16), index)
    assert asked == [(True, (False, True, False)), (False, (True, True, False))]


@pytest.mark.parametrize("edges", ["none", "duplicates", "self_loops", "hub"])
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_graphs(always, edges, aggr):
    pair.check_pair(Layer(NARROWING, aggr), pair.features(32), pair.edges(edges))


def test_from_many_sources_to_few_destinations(asked):
    index = torch.stack([torch.randint(0, 300, (90,)), torch.randint(0, 20, (90,))])
    x = pair.features(32, nodes=300), pair.features(3, nodes=20).detach()
    pair.check_pair(Layer(NARROWING, "mean"), x, index)
    assert said(asked) == [True]


@pytest.mark.parametrize(
    "layer",
    [
        lambda: pyg.GCNConv(*WIDENING),
        lambda: pyg.GCNConv(*WIDENING, bias=False, normalize=False),
        lambda: pyg.ClusterGCNConv(*WIDENING),
        lambda: pyg.LEConv(*WIDENING),
        lambda: pyg.GATConv(*WIDENING),
        lambda: pyg.GATv2Conv(*WIDENING),
        lambda: pyg.TransformerConv(*WIDENING, bias=False),
        lambda: pyg.ARMAConv(*WIDENING),
        lambda: pyg.FiLMConv(*WIDENING),
        lambda: pyg.SuperGATConv(*WIDENING),
        lambda: pyg.GCN2Conv(4, 0.5),
        lambda: pyg.GatedGraphConv(8, 2),
        lambda: pyg.EGConv(4, 32),
    ],
    ids=lambda make: type(make()).__name__,
)
def test_layers_of_pyg(layer):
    layer = layer().double()
    given = (pair.features(4), pair.features(4, seed=1)) if isinstance(layer, pyg.GCN2Conv) else (pair.features(4),)
    for _ in range(2):  # what was looked at does not wait again
        pair.check_pair(layer, *given, pair.edges())


def test_gcn(asked):
    layer, index = pyg.GCNConv(*WIDENING).double(), pair.edges()
    assert pair.check_pair(layer, pair.features(4), index) == {"mul.sum": 1}
    assert pair.check_pair(layer, pair.features(4), index, torch.rand(90).double().requires_grad_()) == {"mul.sum": 1}
    assert said(asked) == [True, True]


SCALE = torch.arange(1, 1 + pair.NODES).double().unsqueeze(1)
USES = {
    "a root term behind": dict(then=lambda total, mapped: total + mapped),
    "a root term in place": dict(then=lambda total, mapped: total.add_(mapped)),
    "written to behind": dict(then=lambda total, mapped: total + mapped.detach().mul_(2.0)),
    "a view": dict(of=lambda mapped: mapped.view(-1, 2, 16).transpose(1, 2).reshape(-1, 32)),
    "a unit": dict(of=lambda mapped: mapped.relu()),
    "a bias": dict(of=lambda mapped: mapped + torch.arange(32).double()),
    "a scale": dict(of=lambda mapped: mapped * SCALE),
    "over a scale": dict(of=lambda mapped: mapped / SCALE),
    "under a scale": dict(of=lambda mapped: SCALE / (mapped + 99)),
    "a scale for each feature": dict(of=lambda mapped: mapped * torch.arange(32).double()),
    "its square": dict(of=lambda mapped: mapped * mapped),
    "a number": dict(of=lambda mapped: 2.0 * mapped),
    "looked at": dict(then=lambda total, mapped: total * mapped.sum()),
    "mapped again": dict(then=lambda total, mapped: total @ torch.ones(32, 2).double()),
    "detached": dict(then=lambda total, mapped: total.tanh() + mapped.detach().mean(0)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_whatever_becomes_of_it(always, use, aggr):
    if (use, aggr) == ("written to behind", "max"):
        pytest.skip("a maximum keeps what it was taken of for its gradient, mapped or not")
    layer = Layer(WIDENING, aggr, **USES[use])
    for _ in range(2):
        pair.check_pair(layer, pair.features(4), pair.edges())


MESSAGES = {
    "a unit": lambda x_j, x_i, w: x_j.relu(),
    "a sum": lambda x_j, x_i, w: x_j + w,
    "a product of two": lambda x_j, x_i, w: x_j * x_i,
    "a quotient of two": lambda x_j, x_i, w: w / (1 + x_j * x_j),
    "a difference": lambda x_j, x_i, w: x_i - x_j,
    "the other end": lambda x_j, x_i, w: x_i * w,
    "a row of weights": lambda x_j, x_i, w: x_j * w * torch.arange(32).double(),
    "a score": lambda x_j, x_i, w: (x_j * x_i).sum(-1, keepdim=True) * x_j,
    "negative": lambda x_j, x_i, w: -(w * x_j) / 3.0,
}


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_messages(always, message, aggr):
    class Messages(Layer):
        def message(self, x_j, x_i, weight):
            return MESSAGES[message](x_j, x_i, weight.view(-1, 1))

    weight = torch.rand(90, dtype=torch.float64, requires_grad=True)
    pair.check_pair(Messages(WIDENING, aggr), pair.features(4), pair.edges(), weight)


def test_scaled_rows_are_mapped_behind_their_sum(asked):
    scale = torch.rand(pair.NODES, 1).double()
    layer = Layer(WIDENING, of=lambda mapped: mapped * scale)
    for _ in range(2):
        pair.check_pair(layer, pair.features(4), pair.edges())
    assert said(asked) == [True, True]


def test_what_was_looked_at_does_not_wait_again(asked):
    layer = Layer(WIDENING, then=lambda total, mapped: total + mapped)
    for _ in range(3):
        pair.check_pair(layer, pair.features(4), pair.edges())
    assert len(asked) == 1


def test_what_goes_first_by_the_rule_waits_for_other_rows_and_gradients(asked):
    layer, index = Layer(NARROWING), pair.edges("large")
    for _ in range(3):
        pair.check_pair(layer, pair.features(32), index)
    assert said(asked) == [False]
    pair.check_pair(layer, pair.features(32).detach(), index)
    with torch.no_grad(), gsb.enabled("pyg"):
        layer(pair.features(32), index)
        layer(pair.features(32, nodes=pair.NODES + 1), index)
    assert said(asked) == [False] * 4


def test_the_product_is_computed_once(monkeypatch):
    made = []
    of = products.Product.of
    monkeypatch.setattr(products.Product, "of", lambda self, x: made.append(x.shape) or of(self, x))
    layer = Layer(NARROWING, then=lambda total, mapped: total + mapped + mapped.relu())
    with gsb.enabled("pyg"):
        layer(pair.features(32), pair.edges("large"))
    assert len(made) == 1


def test_parameters_may_be_swapped(asked):
    """PyTorch swaps none that has a weak reference."""
    layer, before = Layer(WIDENING), torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        pair.check_pair(layer, pair.features(4), pair.edges())
        layer.float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    assert asked == []


@pytest.mark.parametrize("matrix", [lambda m: m * 1.0, lambda m: m.detach()], ids=["computed", "detached"])
def test_a_matrix_that_does_not_last_is_not_waited_for(asked, matrix):
    class Computed(Layer):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x @ matrix(self.matrix), weight=None)

    pair.check_pair(Computed(WIDENING), pair.features(4), pair.edges())
    assert asked == []


def test_a_bias_of_the_map_is_summed_with_it(asked):
    class Biased(pyg.MessagePassing):
        def __init__(self):
            super().__init__("sum")
            self.linear = nn.Linear(*WIDENING).double()

        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=self.linear(x))

    pair.check_pair(Biased(), pair.features(4), pair.edges())
    assert asked == []


def test_hooks_of_the_map_see_it(always):
    layer, seen = pyg.GCNConv(*WIDENING).double(), []
    layer.lin.register_forward_hook(lambda module, given, result: seen.append(result.sum().item()))
    layer.lin.register_full_backward_hook(lambda module, given, result: seen.append(result[0].sum().item()))
    pair.check_pair(layer, pair.features(4), pair.edges())
    assert len(seen) == 4 and seen[:2] == pytest.approx(seen[2:])


def test_a_hook_on_the_mapped_tensor_sees_its_gradient(always):
    seen = []

    def of(mapped):
        mapped.register_hook(lambda grad: seen.append(grad.sum().item()))
        return mapped

    pair.check_pair(Layer(WIDENING, of=of), pair.features(4), pair.edges())
    assert len(seen) == 2 and seen[0] == pytest.approx(seen[1])


def test_a_gradient_that_is_gone_is_an_error(always):
    layer = Layer(WIDENING, then=lambda total, mapped: (total + 0.0, mapped.register_hook(print)))
    with gsb.enabled("pyg"), pytest.raises(RuntimeError, match="register the hook before"):
        layer(pair.features(4), pair.edges())


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_gradients(always, weighted):
    layer, index = Layer((2, 3), "mean"), pair.edges("duplicates")
    weight = torch.rand(6, dtype=torch.float64, requires_grad=True)
    with gsb.enabled("pyg"):

        def function(x, matrix, w):
            given = (x, index, w) if weighted else (x, index)
            return torch.func.functional_call(layer, {"matrix": matrix}, given)

        given = pair.features(2, nodes=8), layer.matrix, weight
        assert torch.autograd.gradcheck(lambda x, m, w: layer(x, index, w), given) if weighted else True
        assert torch.autograd.gradgradcheck(
            lambda x, m, w: layer(x, index, w if weighted else None), given[:1] + given[1:]
        )


class BelowAutograd(torch.autograd.Function):
    """A function that PyTorch does not announce."""

    @staticmethod
    def forward(ctx, x):
        return x * 2.0

    @staticmethod
    def backward(ctx, grad):
        return grad * 2.0


@pytest.mark.parametrize("of", [BelowAutograd.apply, torch.clone])
def test_below_autograd(always, of):
    layer = Layer((2, 3), of=of)
    pair.check_pair(layer, pair.features(2), pair.edges())
    with gsb.enabled("pyg"):
        assert torch.autograd.gradgradcheck(lambda x: layer(x, pair.edges("duplicates")), (pair.features(2, nodes=8),))


def test_messages_that_are_differentiated_below_autograd(always):
    class Below(Layer):
        def message(self, x_j, weight):
            return BelowAutograd.apply(x_j)

    layer = Below((2, 3))
    pair.check_pair(layer, pair.features(2), pair.edges())
    with gsb.enabled("pyg"):
        assert torch.autograd.gradgradcheck(lambda x: layer(x, pair.edges("duplicates")), (pair.features(2, nodes=8),))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(asked, reentrant):
    layer, index = pyg.GCNConv(*WIDENING).double(), pair.edges()
    pair.check_pair(layer, pair.features(4), index)

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return checkpoint(self.layer, x, index, use_reentrant=reentrant).relu()

    x = pair.features(4)
    leaves = [x, *layer.parameters()]

    def step():
        for each in leaves:
            each.grad = None
        out = Checkpointed()(x)
        out.square().sum().backward()
        return [out.detach(), *(each.grad for each in leaves)]

    expected = step()
    with gsb.enabled("pyg"):
        found = step()
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_without_gradients(asked, without):
    layer, x, index = pyg.GCNConv(*WIDENING).double(), pair.features(4), pair.edges()
    with without():
        expected = layer(x, index)
        with gsb.enabled("pyg"):
            found = layer(x, index)
    torch.testing.assert_close(found, expected)
    assert asked == [(True, (False, False, False))] and type(found) is torch.Tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [lambda: pyg.GCNConv(*WIDENING), lambda: Layer(WIDENING, "mean").float()])
def test_under_autocast(asked, make, dtype):
    layer, index = make(), pair.edges("large")
    x = pair.features(4, dtype=torch.float32).to(dtype).detach().requires_grad_()

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            return pair.step(layer, x, index)

    expected = step()
    with gsb.enabled("pyg"):
        found = step()
    assert said(asked) == [True]
    for name, value in expected.items():
        assert found[name].dtype is value.dtype and type(found[name]) is torch.Tensor
        error = (found[name].double() - value.double()).norm() / value.double().norm()
        assert error < 1e-2, name


def test_autocast_of_the_map_alone(always):
    class Inside(Layer):
        def forward(self, x, edge_index):
            with torch.autocast("cpu", torch.bfloat16):
                mapped = x @ self.matrix
            return self.propagate(edge_index, x=mapped, weight=None)

    layer, index, x = Inside(WIDENING).float(), pair.edges("large"), pair.features(4, dtype=torch.float32)
    expected = pair.step(layer, x, index)
    with gsb.enabled("pyg"):
        found = pair.step(layer, x, index)
    for name, value in expected.items():
        assert found[name].dtype is value.dtype
        assert (found[name].double() - value.double()).norm() < 1e-2 * value.double().norm()


def test_what_is_written_to_before_the_sum_was_read_before():
    class Written(Layer):
        def forward(self, x, edge_index):
            x = x * 1.0
            mapped = x @ self.matrix
            x.mul_(3.0)
            return self.propagate(edge_index, x=mapped, weight=None) + x.sum()

    layer, index = Written(WIDENING), pair.edges()
    with torch.no_grad():
        expected = layer(pair.features(4), index)
        with gsb.enabled("pyg"):
            torch.testing.assert_close(layer(pair.features(4), index), expected)


def test_what_leaves_a_layer_is_an_ordinary_tensor(always):
    layer = Layer(WIDENING, then=lambda total, mapped: (total, mapped))
    x, index = pair.features(4), pair.edges()
    expected = layer(x, index)
    with gsb.enabled("pyg"):
        found = layer(x, index)
    for one, other in zip(found, expected):
        assert type(one) is torch.Tensor
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("message", "linear"),
    [
        ("x0", True),
        ("mul(x1, x0)", True),
        ("div(mul(x0, x1), x2)", True),
        ("neg(x0)", True),
        ("div(x1, x0)", False),
        ("mul(x0, x0)", False),
        ("add(x0, x1)", False),
        ("relu(x0)", False),
        ("x1", False),
    ],
)
def test_what_a_map_may_go_behind(message, linear):
    assert term(parse(message)).linear_in(0) is linear and BARE.linear_in(0)


def mapped_and_summed(graph, x, matrix, op=fn.sum, of=lambda mapped: mapped):
    graph.srcdata["h"] = of(x @ matrix)
    graph.update_all(fn.copy_u("h", "m"), op("m", "out"))
    return graph.dstdata["out"]


class OfScope(nn.Module):
    """A user's own layer of DGL."""

    def __init__(self, graph, function):
        super().__init__()
        self.graph, self.function = graph, function

    def forward(self, *tensors):
        with self.graph.local_scope():
            return self.function(self.graph, *tensors)


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
            for kind in (LazyTensor, torch.Tensor):  # one that was looked at is the last that waits
                expected.append((x @ m).detach())
                optimiser.zero_grad()
                layer(x).sum().backward()
                assert type(kept[-1]) is kind
                optimiser.step()
                assert type(kept[-1]) is torch.Tensor
        for found, wanted in zip(kept, expected):
            torch.testing.assert_close(found.detach(), wanted)

    def test_a_map_that_is_kept_is_an_ordinary_tensor_once_the_backend_is_off(self, always, block):
        kept, x, m = [], torch.randn(300, 32).double(), nn.Parameter(torch.randn(32, 4).double())
        layer = OfScope(block, lambda g, x: (kept.append(x @ m), mapped_and_summed(g, x, m, of=lambda h: kept[-1]))[1])
        before = len(_global_optimizer_pre_hooks)
        with gsb.enabled("dgl"):
            layer(x)
            assert type(kept[0]) is LazyTensor
        assert type(kept[0]) is torch.Tensor and len(_global_optimizer_pre_hooks) == before
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
            assert torch.autograd.gradgradcheck(layer, given)
