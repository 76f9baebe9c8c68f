"""PyG's own layers give the same outputs and gradients with the backend, and it is our kernel that runs."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn

import gnn_sparse_backend as gsb
from tests.covering import covering
from tests.integrations.pyg.pair import EDGES, NODES, calls, check_pair, edges, features


def weights(edge_index, dtype=torch.float64):
    values = torch.rand(edge_index.shape[1], dtype=dtype, generator=torch.Generator().manual_seed(3))
    return values.requires_grad_()


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("aggr", ["mean", "sum", "add"])
def test_sage(name, aggr):
    counts = check_pair(gnn.SAGEConv(5, 4, aggr=aggr).double(), features(5), edges(name))
    assert counts == {"copy.mean" if aggr == "mean" else "copy.sum": 1}


@pytest.mark.parametrize("name", EDGES)
def test_gin(name):
    assert check_pair(gnn.GINConv(nn.Linear(5, 4)).double(), features(5), edges(name)) == {"copy.sum": 1}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("aggr", ["mean", "add"])
def test_graph_conv_weights(name, aggr):
    edge_index = edges(name)
    counts = check_pair(gnn.GraphConv(5, 4, aggr=aggr).double(), features(5), edge_index, weights(edge_index))
    assert counts == {"mul.mean" if aggr == "mean" else "mul.sum": 1}


@pytest.mark.parametrize(
    "name, options, weighted",
    covering(
        {
            "name": list(EDGES),
            "options": [
                {},
                {"improved": True},
                {"add_self_loops": False},
                {"cached": True},
                {"normalize": False},
                {"aggr": "mean"},
            ],
            "weighted": [False, True],
        }
    ),
    ids=str,
)
def test_gcn(name, options, weighted):
    edge_index = edges(name)
    # A cached layer keeps the normalised weights, whose history a second backward pass would need.
    values = weights(edge_index).requires_grad_(not options.get("cached")) if weighted else None
    counts = check_pair(gnn.GCNConv(5, 4, **options).double(), features(5), edge_index, values)
    kind = "copy" if options == {"normalize": False} and not weighted else "mul"
    assert counts == {f"{kind}.{'mean' if 'aggr' in options else 'sum'}": 1}


@pytest.mark.parametrize(
    "layer, counted",
    [
        (lambda: gnn.TAGConv(5, 4, K=2), {"mul.sum": 2}),
        (lambda: gnn.ChebConv(5, 4, K=2), {"mul.sum": 1}),
        (lambda: gnn.SGConv(5, 4, K=2), {"mul.sum": 2}),
        (lambda: gnn.APPNP(K=2, alpha=0.1), {"mul.sum": 2}),
        (lambda: gnn.GatedGraphConv(6, 2), {"copy.sum": 2}),
        (lambda: gnn.SAGEConv(5, 4, aggr="max"), {"copy.max": 1}),
        (lambda: gnn.SAGEConv(5, 4, aggr="std"), {"copy.mean": 1, "message.mean": 1}),
        (lambda: gnn.GATConv(5, 4, heads=3), {"attention": 1}),
        (lambda: gnn.GATv2Conv(5, 4, heads=3), {"attention": 1}),
        (lambda: gnn.TransformerConv(5, 4, heads=2), {"attention": 1}),
        (lambda: gnn.EdgeConv(nn.Linear(10, 4)), {"gather": 1, "edge_map": 1, "scatter.max": 1}),
    ],
    ids=lambda value: None if isinstance(value, dict) else "",
)
def test_other_layers(layer, counted):
    assert check_pair(layer().double(), features(5), edges()) == counted


@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("layer", [gnn.SAGEConv, gnn.GraphConv], ids=lambda layer: layer.__name__)
def test_bipartite(layer, sized):
    edge_index = torch.stack([edges("random")[0], edges("random")[1] % 7])
    pair = (features(5), features(3, nodes=9, seed=1))
    counts = check_pair(layer((5, 3), 4).double(), pair, edge_index, **({"size": (NODES, 9)} if sized else {}))
    assert counts == {"copy.mean" if layer is gnn.SAGEConv else "copy.sum": 1}


def test_bipartite_without_destination_features():
    edge_index = torch.stack([edges("random")[0], edges("random")[1] % 7])
    counts = check_pair(gnn.SAGEConv((5, 5), 4).double(), (features(5), None), edge_index, size=(NODES, 12))
    assert counts == {"copy.mean": 1}


def test_sampled_batches():
    """Two bipartite layers as a neighbour loader makes them: destinations come first among the sources."""
    layers = nn.ModuleList([gnn.SAGEConv(5, 6), gnn.SAGEConv(6, 4)]).double()
    generator = torch.Generator().manual_seed(0)

    def forward(x, batch):
        for layer, (edge_index, destinations) in zip(layers, batch):
            x = layer((x, x[:destinations]), edge_index).relu()
        return x

    for sources, middle, seeds in ((23, 11, 4), (23, 8, 1), (23, 23, 23)):
        batch = [
            (
                torch.stack(
                    [
                        torch.randint(0, sources, (40,), generator=generator),
                        torch.randint(0, middle, (40,), generator=generator),
                    ]
                ),
                middle,
            ),
            (
                torch.stack(
                    [
                        torch.randint(0, middle, (15,), generator=generator),
                        torch.randint(0, seeds, (15,), generator=generator),
                    ]
                ),
                seeds,
            ),
        ]
        assert check_pair(lambda x, batch=batch: forward(x, batch), features(5)) == {"copy.mean": 2}


def test_target_to_source():
    assert check_pair(gnn.SAGEConv(5, 4, flow="target_to_source").double(), features(5), edges()) == {"copy.mean": 1}
    model = gnn.GCNConv(5, 4, flow="target_to_source").double()
    assert check_pair(model, features(5), edges()) == {"mul.sum": 1}


def test_decomposed_layers():
    model = gnn.GCNConv(5, 6, decomposed_layers=3).double()
    assert check_pair(model, features(5), edges()) == {"mul.sum": 3}


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-5), (torch.float64, 1e-12)])
def test_precision(dtype, tolerance):
    model = gnn.GCNConv(5, 4).to(dtype)
    assert check_pair(model, features(5, dtype=dtype), edges("large"), rtol=tolerance) == {"mul.sum": 1}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_half_types_are_closer_to_the_truth_than_the_framework(dtype, aggr):
    x = features(33).detach().to(dtype)
    edge_index = torch.cat([edges("large"), edges("hub")], dim=1)
    layer = gnn.SimpleConv(aggr=aggr)
    truth = layer(x.double(), edge_index)
    theirs = layer(x, edge_index)
    with gsb.enabled("pyg"):
        ours = layer(x, edge_index)
    assert ours.dtype is dtype
    assert calls() == {f"copy.{aggr}": 1}
    # One rounding of the float32 sum to the half type.
    torch.testing.assert_close(ours.double(), truth, rtol=torch.finfo(dtype).eps, atol=1e-5)
    assert (ours - truth).abs().max() <= (theirs - truth).abs().max()


def test_autocast():
    model = gnn.GCNConv(5, 4)
    x, edge_index = features(5, dtype=torch.float32), edges()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(x, edge_index)
        with gsb.enabled("pyg"):
            actual = model(x, edge_index)
    assert actual.dtype is expected.dtype
    assert calls() == {"mul.sum": 1}
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)  # bfloat16 features, float32 weights and sums


def test_non_finite_features_stay_where_they_are():
    x = features(3).detach()
    x[4, 1], x[5, 0] = float("inf"), float("nan")
    layer = gnn.SimpleConv(aggr="sum")
    expected = layer(x, edges())
    with gsb.enabled("pyg"):
        torch.testing.assert_close(layer(x, edges()), expected, equal_nan=True)


def test_second_derivatives():
    layer, edge_index = gnn.SimpleConv(aggr="sum"), edges()
    x, values = features(2), weights(edge_index)
    with gsb.enabled("pyg"):
        assert torch.autograd.gradgradcheck(lambda x, w: layer(x, edge_index, w), (x, values), fast_mode=True)
    assert calls()["mul.sum"] > 0


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("bad", [-1, NODES, 10**12])
def test_indices_out_of_range_raise_as_without_us(where, bad):
    edge_index = edges("large").clone()
    edge_index[where, 3] = bad
    model = gnn.SAGEConv(5, 4).double()
    with pytest.raises((IndexError, ValueError, RuntimeError)) as theirs:
        model(features(5), edge_index)
    with gsb.enabled("pyg"), pytest.raises(type(theirs.value)) as ours:
        model(features(5), edge_index)
    assert str(ours.value) == str(theirs.value)


def test_training_gives_the_same_loss_curve():
    def train():
        torch.manual_seed(0)
        model = gnn.GraphSAGE(5, 8, num_layers=2, out_channels=3).double()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
        x, edge_index, y = features(5).detach(), edges("large"), torch.arange(NODES) % 3
        losses = []
        for _ in range(8):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x, edge_index), y)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        return losses

    expected = train()
    with gsb.enabled("pyg"):
        actual = train()
    assert calls() == {"copy.mean": 16}
    assert actual == pytest.approx(expected, rel=1e-9)
