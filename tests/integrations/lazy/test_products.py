"""A linear map of features goes behind the sum of neighbours where that costs less, and gives the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations.lazy import products
from gnn_sparse_backend.integrations.lazy.terms import BARE, term
from gnn_sparse_backend.ops.message.programs.message import parse

dgl = pytest.importorskip("dgl")
pytest.importorskip("torch_geometric")

from torch_geometric import nn as pyg  # noqa: E402

from tests.integrations.lazy.mapping import NARROWING, WIDENING, Layer, said  # noqa: E402
from tests.integrations.pyg import pair  # noqa: E402

pytestmark = pytest.mark.usefixtures("every_size")


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


def test_the_product_is_computed_once(calls_to):
    made = calls_to(products.Product, "of")
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


def test_a_hook_that_comes_after_the_sum_sees_the_gradient(always):
    def run():
        seen = []
        layer = Layer(WIDENING, then=lambda total, mapped: (total + 0.0, mapped.register_hook(seen.append)))
        layer(pair.features(4), pair.edges())[0].square().sum().backward()
        return seen

    expected = run()
    with gsb.enabled("pyg"):
        found = run()
    torch.testing.assert_close(found, expected)


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
